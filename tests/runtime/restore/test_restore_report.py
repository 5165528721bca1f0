"""What a report on a restore says: tables of everything, and a text that stays short."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from dataflow.contracts.checkpointing import Mode
from dataflow.events.repeat_precision import Precision
from dataflow.observe.restores import headline, table
from dataflow.protocol.events import Data, Element, EndOfInput, Watermark
from dataflow.protocol.recovery import Skipped
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.parts import ChannelState, Duplicates


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def channel(name: str, *elements: Element, operator: str = "sums") -> ChannelState:
    return ChannelState(operator, f"{operator}[0]", name, elements)


def again(operator: str, name: str, rows: int, kept: Sequence[int]) -> Duplicates:
    return Duplicates(operator, f"{operator}[0]", name, rows, pa.table({"x": pa.array(kept, pa.int64())}))


def report(**others: Any) -> RestoreReport:
    return RestoreReport(7, "ckpt", Mode.UNALIGNED_PERSISTED, finished=False, **others)


FULL = report(
    offsets={"in/a.parquet": [4, 96], "in/dir/b.parquet": None, "more/c": 5},
    replayed={"in/a.parquet": 1_000, "in/dir/b.parquet": 0},
    duplicates=[again("sums", "a[0] -> sums[0]", 3, [1, 2, 3]), again("out", "sums", 1_200, [1])],
    precision={"sums": Precision.EXACT, "out": Precision.UPPER_BOUND},
    in_flight=[
        channel("a[0] -> sums[0]", Data(batch(1, 2)), Watermark(9), Data(batch(3)), EndOfInput()),
        channel("b[0] -> sums[0]", Watermark(4)),
        channel("sums[0] -> out[0]", Data(batch(4, 5, 6, 7)), operator="out"),
    ],
    passed_over=[Skipped(9, "a part is missing")],
    state_bytes=12_345,
    duration=1_234,
)


# --- the text


def test_the_text_says_everything_once() -> None:
    assert str(FULL).splitlines() == [
        "restored checkpoint 7 from ckpt, mode unaligned-persisted (exactly once)",
        "  passed over  1 newer checkpoint",
        "    9:  a part is missing",
        "  read again   3 splits, at least 1,000 rows a second time (not counted for 1 split)",
        "    in/a.parquet      from [4, 96]        1,000 rows",
        "    in/dir/b.parquet  from the beginning  0 rows",
        "    more/c            from 5              rows not counted",
        "  in flight    7 rows, 56 bytes on 3 channels re-injected",
        "    sums[0] -> out[0]  4 rows  32 bytes",
        "    a[0] -> sums[0]    3 rows  24 bytes",
        "    b[0] -> sums[0]    0 rows  0 bytes",
        "  duplicates   delivered again: out 1,200 rows, sums 3 rows",
        "    out   on sums             1,200 rows  1 stored    upper bound",
        "    sums  on a[0] -> sums[0]  3 rows      all stored  exact",
        "  state        12,345 bytes",
        "  took         1.2 ms",
    ]


def test_a_report_with_nothing_in_it_says_so() -> None:
    assert str(report()).splitlines() == [
        "restored checkpoint 7 from ckpt, mode unaligned-persisted (exactly once)",
        "  read again   nothing: all input had been read",
        "  in flight    nothing",
        "  duplicates   no row is delivered again",
        "  state        0 bytes",
    ]


def test_where_a_count_may_be_too_low_the_text_says_so_also_without_duplicates() -> None:
    low = report(precision={f"out-{i}": Precision.MAY_BE_TOO_LOW for i in range(5)})
    assert str(low).splitlines()[3:5] == [
        "  duplicates   none counted",
        "  not counted  rows that operators kept: duplicates may be too low at out-0, out-1, out-2, 2 more operators",
    ]


def test_a_job_that_had_finished_has_nothing_to_read() -> None:
    finished = RestoreReport(7, "ckpt", Mode.ALIGNED, finished=True)
    assert "finished     the job had finished: no input is left to read" in str(finished)
    assert "read again" not in str(finished)


def test_two_hundred_splits_are_cut_to_ten() -> None:
    text = str(report(offsets={f"in/{i}": i for i in range(200)}))
    assert "read again   200 splits" in text
    assert text.count("  in/") == 10
    assert "    ... and 190 more\n" in text


@pytest.mark.parametrize("section", ["offsets", "in_flight", "duplicates", "passed_over", "not_read"])
def test_every_list_is_cut(section: str) -> None:
    lists: dict[str, Any] = {
        "offsets": {f"in/{i}": None for i in range(1_012)},
        "in_flight": [channel(f"c{i}", Data(batch(i))) for i in range(1_012)],
        "duplicates": [again("sums", f"c{i}", 1, [i]) for i in range(1_012)],
        "passed_over": [Skipped(i, "no good") for i in range(1_012)],
        "not_read": [f"in/{i}" for i in range(1_012)],
    }
    text = str(report(**{section: lists[section]}))
    assert text.count("... and 1,002 more") == 1
    assert len(text.splitlines()) <= 18


def test_a_list_is_not_cut_for_one_line() -> None:
    assert "more" not in str(report(offsets={f"in/{i}": i for i in range(11)}))


def test_many_operators_with_duplicates_are_counted() -> None:
    text = str(report(duplicates=[again(f"op-{i}", "c", i + 1, []) for i in range(5)]))
    assert "delivered again: op-4 5 rows, op-3 4 rows, op-2 3 rows, 2 more operators\n" in text


def test_on_a_terminal_it_is_a_table_and_brackets_are_no_markup() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(report(offsets={"in/[red]": ["[b]x"]})))
    text = console.export_text()
    assert "in/[red]" in text
    assert 'from ["[b]x"]' in text
    assert headline(FULL) == "a restore of checkpoint 7 in ckpt, mode unaligned-persisted (exactly once)"


# --- the tables


def test_offsets_are_a_table() -> None:
    assert FULL.offsets_table().to_pylist() == [
        {"source": "in", "split": "a.parquet", "offset": "[4, 96]", "replayed": 1_000},
        {"source": "in", "split": "dir/b.parquet", "offset": None, "replayed": 0},
        {"source": "more", "split": "c", "offset": "5", "replayed": None},
    ]
    assert FULL.rows_replayed == 1_000


def test_duplicates_are_a_table() -> None:
    sums, out = FULL.duplicates_table().to_pylist()
    where = {"operator": "sums", "task": "sums[0]", "channel": "a[0] -> sums[0]"}
    assert sums == {**where, "rows": 3, "kept": 3, "precision": "exact"}
    where = {"operator": "out", "task": "out[0]", "channel": "sums"}
    assert out == {**where, "rows": 1_200, "kept": 1, "precision": "upper bound"}


def test_what_was_in_flight_is_a_table_with_its_control() -> None:
    found = FULL.in_flight_table().drop_columns(["operator", "task"]).to_pydict()
    assert found == {
        "channel": ["a[0] -> sums[0]", "b[0] -> sums[0]", "sums[0] -> out[0]"],
        "rows": [3, 0, 4],
        "bytes": [24, 0, 32],
        "batches": [2, 0, 1],
        "watermarks": [1, 1, 0],
        "ended": [True, False, False],
        "port": [None, None, None],
        "generation": [0, 0, 0],
    }


def test_rows_in_flight_can_be_had_by_operator_in_order() -> None:
    rows = FULL.in_flight_rows_of("sums")
    assert rows is not None
    assert rows["x"].to_pylist() == [1, 2, 3]
    assert FULL.in_flight_rows_of("elsewhere") is None
    assert report(in_flight=[channel("a", Watermark(3))]).in_flight_rows_of("sums") is None


def test_batches_without_rows_keep_their_columns() -> None:
    empty = report(in_flight=[channel("a", Data(batch()))], duplicates=[again("sums", "a", 0, [])])
    rows = empty.in_flight_rows_of("sums")
    assert rows is not None
    assert (rows.num_rows, rows.column_names) == (0, ["x"])
    assert "a  0 rows  0 bytes" in str(empty)


def test_rows_of_inputs_with_different_columns_come_in_one_table() -> None:
    other = Data(pa.record_batch({"y": [5]}))
    rows = report(in_flight=[channel("a", Data(batch(1))), channel("b", other)]).in_flight_rows_of("sums")
    assert rows is not None
    assert rows.to_pydict() == {"x": [1, None], "y": [None, 5]}


@pytest.mark.parametrize("name", ["offsets_table", "duplicates_table", "in_flight_table"])
def test_a_table_of_nothing_has_the_same_columns(name: str) -> None:
    nothing = getattr(report(), name)()
    assert nothing.num_rows == 0
    assert nothing.schema == getattr(FULL, name)().schema


def test_as_json_it_has_all_but_the_rows() -> None:
    found = json.loads(json.dumps(FULL.to_json()))
    assert (found["guarantee"], found["rows_replayed_at_least"], found["in_flight_rows"]) == ("exactly once", 1_000, 7)
    assert found["duplicated"] == {"sums": 3, "out": 1_200}
    assert [len(found[name]) for name in ("offsets", "in_flight", "duplicates", "passed_over")] == [3, 3, 2, 1]


def test_long_text_in_an_offset_is_cut_and_the_rest_is_shown() -> None:
    shown = str(report(offsets={"in#0": {"names": "x" * 5_000, "file": "9.csv"}}))
    assert 'from {"names": "xxxxxxxxxxxxxxxx... (5,000 characters)", "file": "9.csv"}' in shown
