"""The judge must not be lenient: rows too many, too few, or not where the report says are all found."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from dataflow.compare.claims import AnyRows, Claim, LastRowsOfKeys, Rows, Unsettled
from dataflow.compare.verdict import EQUAL, Verdict, compare_outputs, judge
from dataflow.contracts.checkpointing import Mode
from dataflow.events.repeat_precision import Precision
from dataflow.runtime.restore.find_checkpoint import RestoreReport
from dataflow.runtime.task.parts import Duplicates

KEYED = LastRowsOfKeys(("k",), ("k",), "agg", updates=True, first=True)
FINAL = LastRowsOfKeys(("k",), ("k",), "agg", updates=False, first=True)


def _table(**counts: int) -> pa.Table:
    return pa.table({"k": list(counts), "n": list(counts.values())}, pa.schema([("k", "string"), ("n", "int64")]))


def _reported(operator: str, rows: pa.Table, count: int | None = None) -> RestoreReport:
    duplicates = [Duplicates(operator, f"{operator}[0]", "a channel", rows.num_rows if count is None else count, rows)]
    return RestoreReport(1, "here", Mode.UNALIGNED, finished=False, duplicates=duplicates)


def _judge(claim: Claim, found: pa.Table, wanted: pa.Table, report: RestoreReport | None = None) -> Verdict:
    return judge("out", claim, found, wanted, report)


@pytest.mark.parametrize("claim", [Rows(), AnyRows(), KEYED, FINAL])
def test_equal_outputs_are_equal_and_others_differ(claim: Claim) -> None:
    assert compare_outputs(claim, _table(b=2, a=1), _table(a=1, b=2)) == Verdict(EQUAL)
    assert compare_outputs(claim, _table(a=1), _table(a=1, b=2)).failures
    assert compare_outputs(claim, _table(a=1, b=3), _table(a=1, b=2)).failures


def test_earlier_updates_do_not_matter_but_a_final_key_comes_once() -> None:
    twice = pa.concat_tables([_table(a=1), _table(a=1)])
    assert compare_outputs(KEYED, twice, _table(a=1)) == Verdict(EQUAL)
    assert compare_outputs(FINAL, twice, _table(a=1)).failures == ["expected one row for each of 1 keys, found 2 rows"]


def test_what_is_unsettled_is_not_compared() -> None:
    assert compare_outputs(Unsettled("so it is"), _table(a=1), _table()) == Verdict(
        "not compared: so it is", checked=False
    )


def test_a_row_wise_sink_has_exactly_the_reported_rows_more() -> None:
    found = pa.concat_tables([_table(a=1, b=2), _table(b=2)])
    verdict = _judge(Rows(), found, _table(a=1, b=2), _reported("out", _table(b=2)))
    assert verdict == Verdict("equals the run without a kill + exactly the 1 reported repeated deliveries")


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        (
            _reported("out", _table(a=1)),
            "compared with the run without a kill + repeated rows, 1 rows too many and 1 too few",
        ),
        (_reported("out", _table(b=2), 5), "the restore reported 5 repeated deliveries and stored 1 of them"),
        (_reported("elsewhere", _table(b=2)), "1 rows too many and 0 too few"),
        (None, "1 rows too many and 0 too few"),
    ],
)
def test_a_row_wise_sink_with_other_rows_fails(reported: RestoreReport | None, message: str) -> None:
    found = pa.concat_tables([_table(a=1, b=2), _table(b=2)])
    (failure,) = _judge(Rows(), found, _table(a=1, b=2), reported).failures
    assert failure.startswith(message)


def test_only_keys_with_reported_rows_may_differ_behind_an_aggregate() -> None:
    report = _reported("agg", pa.table({"k": ["b", "b"], "x": [1, 2]}))
    good = _judge(KEYED, _table(a=1, b=4), _table(a=1, b=2), report)
    assert good == Verdict(
        "1 of 2 keys differ, all of them among the keys of the 2 repeated deliveries reported at 'agg' (an upper bound)"
    )
    assert (
        "keys without a repeated delivery differ"
        in _judge(KEYED, _table(a=2, b=4), _table(a=1, b=2), report).failures[0]
    )


def test_behind_other_state_the_report_is_an_upper_bound() -> None:
    verdict = _judge(AnyRows(), _table(a=2), _table(a=1), _reported("agg", _table(a=1)))
    assert not verdict.failures
    assert verdict.result.endswith("downstream of state, the 1 repeated deliveries are an upper bound")


def test_behind_an_operator_that_keeps_rows_the_report_may_be_too_low() -> None:
    report = replace(_reported("own", _table(a=1)), precision={"out": Precision.MAY_BE_TOO_LOW})
    verdict = _judge(AnyRows(), _table(a=2), _table(a=1), report)
    assert not verdict.failures
    assert verdict.result.endswith("downstream of an operator that keeps rows, 1 repeated deliveries may be too few")


def test_sinks_with_one_result_share_it_and_others_are_named() -> None:
    assert Verdict.of({"a": Verdict(EQUAL), "b": Verdict(EQUAL)}) == Verdict(EQUAL)
    both = Verdict.of({"a": Verdict(EQUAL), "b": Verdict("differs", ["so"])})
    assert both == Verdict(f"a: {EQUAL}; b: differs", ("sink 'b': so",))
