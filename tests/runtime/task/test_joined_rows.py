"""Waiting batches that are joined: which, and that the rows, their colours and their order stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Idle, Watermark
from dataflow.runners.faults import Faults
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.joined_rows import MOST_ROWS, Apart, JoinPolicy, JoinSmall, Pile, has_fixed_width, may_join
from dataflow.testing import Ledger, ledger_sink
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import simulate


class Always:
    def room(self, rows: int) -> int:
        return 1 << 30


@dataclass
class Drawn:
    """Answers with the numbers of a list, again and again."""

    rooms: Sequence[int]
    asked: int = field(default=0, init=False)

    def room(self, rows: int) -> int:
        self.asked += 1
        return self.rooms[self.asked % len(self.rooms)]


def rows(*numbers: int, epoch: int = 0) -> Data:
    return Data(pa.record_batch({"x": pa.array(numbers, pa.int64())}), epoch)


def channel(join: JoinPolicy, *elements: Element, credit: int = 2, overtakable: bool = False) -> Channel:
    made = Channel(credit, "a", overtakable=overtakable, join=join, fixed_width=True)
    for element in elements:
        made.put(element)
    return made


def flat(elements: Sequence[Element]) -> list[Any]:
    """Return the elements in order, with an entry (value, colour) for each row."""
    found: list[Any] = []
    for element in elements:
        if isinstance(element, Data):
            batch: Any = element.rows
            found += [(x, element.epoch) for x in batch["x"].to_pylist()]
        else:
            found.append(element)
    return found


def drained(made: Channel, cut: int | None = None) -> list[Element]:
    taken = []
    while made.head is not None:
        taken.append(made.take(cut))
    return taken


def test_batches_of_one_colour_next_to_each_other_are_joined_and_use_one_credit() -> None:
    made = channel(Always(), rows(1), rows(2, 3), rows(4))
    assert made.has_credit
    assert made.queued_rows == 4
    (element,) = drained(made)
    assert flat([element]) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert made.queued_rows == 0


@pytest.mark.parametrize("between", [Watermark(1), Idle(), Barrier(1)])
def test_rows_with_control_between_them_are_not_joined(between: Element) -> None:
    assert len(drained(channel(Always(), rows(1), between, rows(2)))) == 3


def test_rows_of_two_colours_are_not_joined() -> None:
    assert len(drained(channel(Always(), rows(1), rows(2, epoch=1)))) == 2


def test_rows_put_after_an_urgent_element_do_not_join_rows_before_it() -> None:
    made = channel(Always(), rows(1), Cancel(1), rows(2))
    assert flat(made.take_urgent()[1]) == [(1, 0)]
    assert len(drained(made)) == 2


def test_an_overtaking_barrier_records_joined_rows_as_a_batch() -> None:
    made = channel(Always(), rows(1), rows(2), Barrier(1, unaligned=True), rows(3, epoch=1), overtakable=True)
    assert flat(made.queued) == [(1, 0), (2, 0), (3, 1)]
    _, overtaken = made.take_urgent()
    assert [len(element.rows) for element in overtaken if isinstance(element, Data)] == [2]
    assert flat(drained(made)) == [(1, 0), (2, 0), (3, 1)]


def test_a_part_of_joined_rows_is_taken_and_the_rest_stays_and_is_joined() -> None:
    made = channel(Always(), rows(1), rows(2), rows(3))
    assert flat([made.take(2)]) == [(1, 0), (2, 0)]
    made.put(rows(4))
    assert [flat([element]) for element in drained(made)] == [[(3, 0), (4, 0)]]


def test_rows_of_other_columns_are_not_joined() -> None:
    other = Data(pa.record_batch({"y": [1]}))
    assert len(drained(channel(Always(), rows(1), other))) == 2


def test_what_is_large_already_is_not_copied() -> None:
    assert JoinSmall().room(MOST_ROWS // 2) == MOST_ROWS // 2
    assert JoinSmall().room(MOST_ROWS // 2 + 1) == 0
    assert Apart().room(0) == 0


def test_the_bytes_of_text_count() -> None:
    text, short = (pa.record_batch({"s": ["x" * length]}) for length in (1 << 20, 1))
    assert not has_fixed_width(text.schema)
    assert not may_join(short, text, Always(), fixed_width=False)
    assert not may_join(Pile([short, text]), short, Always(), fixed_width=False)
    assert may_join(Pile([short, short]), short, Always(), fixed_width=False)


ELEMENTS = st.lists(
    st.one_of(
        st.integers(1, 4).map(lambda n: n),
        st.sampled_from([Watermark(5), Idle(), "barrier", "overtaking", "cancel"]),
    ),
    max_size=30,
)


def puts(script: Sequence[Any]) -> Iterator[Element]:
    """Yield the elements of a script, in which barriers number and colour what is behind them."""
    number = epoch = 0
    for entry in script:
        match entry:
            case int(count):
                yield rows(*range(number, number + count), epoch=epoch)
                number += count
            case "barrier" | "overtaking":
                epoch += 1
                yield Barrier(epoch, unaligned=entry == "overtaking")
            case "cancel":
                yield Cancel(epoch + 1)
            case element:
                yield element
    yield EndOfInput()


@given(
    script=ELEMENTS,
    takes=st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(1, 3)), min_size=1, max_size=10),
    rooms=st.lists(st.integers(0, 12), min_size=1, max_size=6),
)
def test_no_choice_of_what_is_joined_changes_what_is_taken(
    script: list[Any], takes: list[tuple[int, int | None]], rooms: list[int]
) -> None:
    found = []
    for join in (Apart(), Drawn(rooms)):
        made, taken = Channel(2, "a", overtakable=True, join=join, fixed_width=True), []
        elements = puts(script)
        done = False
        for turn in range(200):
            count, cut = takes[turn % len(takes)]
            for _ in range(1 + turn % 3):
                element = next(elements, None)
                if element is None:
                    done = True
                else:
                    made.put(element)
            while made.is_urgent:
                urgent, overtaken = made.take_urgent()
                taken += [("urgent", urgent), ("overtook", flat(overtaken))]
            wanted = count if not done else 1 << 30
            while wanted > 0 and made.head is not None:  # as many rows, whatever the batches are
                got = made.take(min(cut or wanted, wanted))
                taken += flat([got])
                wanted -= len(got.rows) if isinstance(got, Data) else 0
            if done and not len(made):
                break
        found.append(taken)
    assert found[0] == found[1]


SHAPES: dict[str, Any] = {
    "rows": lambda s: s.filter(col("x") % 3 != 0).select("x", "k"),
    "keyed": lambda s: s.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final"),
    "windows": lambda s: (
        s.with_watermark("t", delay="10ms").key_by("k").window(op.tumbling("100ms")).agg(n=op.count(), s=col("x").sum())
    ).select("k", "n", "s"),
}


READERS = {"rows": 2, "keyed": 2, "windows": 1}  # with two of them, speed decides which rows are late


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
@pytest.mark.parametrize(
    ("seed", "shape", "mode"),
    each_once_with_seeds(40, list(SHAPES), ["aligned", "unaligned-persisted", "aligned-timeout"]),
)
def test_a_job_that_joins_gives_what_one_gives_that_does_not(shape: str, mode: str, seed: int) -> None:
    # rows within 10 ms of each other are out of order; some are later than that
    times = [(n + (37 if n % 11 == 0 else 5 * (n % 2))) * 2_000 for n in range(200)]
    data = {"x": range(200), "k": [n % 7 for n in range(200)], "t": pa.array(times, pa.timestamp("us"))}
    found = []
    for joins in (0.0, 1.0):
        world = Ledger()
        with flow.Pipeline("joined") as p:
            table = op.from_arrow(pa.table(data), batch_rows=3, splits=READERS[shape])
            source = p.source(table, name="rows", parallelism=READERS[shape])
            SHAPES[shape](source).sink(ledger_sink(world), name="out")
        faults = Faults(crashes=2, crash_at=["step", "recording"], crash_after=[1], skew=0.4, joins=joins)
        simulate(p, flow.MemoryStore(), seed, faults, mode)
        found.append(sorted(world.rows().elements()))
    assert found[0] == found[1]
