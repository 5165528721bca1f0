"""Judge the output of a restored run: exactly once, or at least once with every repeated delivery reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dataflow.compare.claims import AnyRows, Claim, LastRowsOfKeys, Rows, Unsettled
from dataflow.compare.rows import difference, differing_keys, last_rows, same_but_for_rounding
from dataflow.events.repeat_precision import Precision

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["EQUAL", "Verdict", "compare_outputs", "judge"]

EQUAL = "equals the run without a kill"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the output of one sink, or of all sinks.

    Attributes:
        result: the comparison in words; it holds if there are no ``failures``.
        failures: one sentence for each difference that the guarantee does not allow.
        checked: the output could be compared, so a wrong one would have been noticed.
    """

    result: str
    failures: Sequence[str] = ()
    checked: bool = True

    @staticmethod
    def of(verdicts: Mapping[str, Verdict]) -> Verdict:
        """Return one verdict for all sinks, by name; a result that all share appears once."""
        results = {name: verdict.result for name, verdict in verdicts.items()}
        same = len(set(results.values())) == 1
        return Verdict(
            next(iter(results.values())) if same else "; ".join(f"{n}: {r}" for n, r in results.items()),
            tuple(f"sink {n!r}: {failure}" for n, v in verdicts.items() for failure in v.failures),
            checked=all(verdict.checked for verdict in verdicts.values()),
        )


def judge(sink: str, claim: Claim, actual: pa.Table, undisturbed: pa.Table, report: RestoreReport | None) -> Verdict:
    """Return the verdict on the output of a restored run.

    Args:
        sink: the name of the sink.
        claim: how its rows can be compared.
        actual: the output of the restored run.
        undisturbed: the output of the run without a kill.
        report: the report of a restore that may deliver rows twice; None: no delivery may be repeated.
    """
    if report is None or not report.duplicated():
        return compare_outputs(claim, actual, undisturbed)
    match claim:
        case Rows() if (repeated := report.rows(sink)) is not None:
            return _judge_rows(actual, undisturbed, repeated, report.duplicated(sink))
        case LastRowsOfKeys(first=True, aggregate=aggregate) if (repeated := report.rows(aggregate)) is not None:
            return _judge_last_rows(claim, actual, undisturbed, repeated, report.duplicated(aggregate))
        case Rows() | LastRowsOfKeys(first=True):
            return compare_outputs(claim, actual, undisturbed)
        case LastRowsOfKeys() | AnyRows():
            return _with_bound(compare_outputs(claim, actual, undisturbed), sink, report)
        case Unsettled(reason):
            return Verdict(f"not compared: {reason}", checked=False)
        case _:
            assert_never(claim)


def compare_outputs(claim: Claim, actual: pa.Table, expected: pa.Table) -> Verdict:
    """Return whether two outputs are equal, as far as ``claim`` allows a comparison."""
    match claim:
        case Unsettled(reason):
            return Verdict(f"not compared: {reason}", checked=False)
        case LastRowsOfKeys(keys=keys, updates=updates):
            last, right = last_rows(actual, keys), last_rows(expected, keys)
            apart = differing_keys(last, right, keys)
            if not apart.num_rows and (updates or actual.num_rows == last.num_rows):
                return Verdict(EQUAL)
            if not apart.num_rows:
                return Verdict(
                    "differs", [f"expected one row for each of {last.num_rows:,} keys, found {actual.num_rows:,} rows"]
                )
            example = apart.slice(0, 1).to_pylist()[0]
            return Verdict(
                "differs",
                [f"the last rows of {apart.num_rows:,} of {right.num_rows:,} keys differ, for example of {example}"],
            )
        case Rows() | AnyRows():
            apart, more, fewer = difference(actual, expected)
            if not apart.num_rows or (isinstance(claim, AnyRows) and same_but_for_rounding(actual, expected)):
                return Verdict(EQUAL)
            example = apart.slice(0, 1).to_pylist()[0]
            return Verdict("differs", [f"{more:,} rows too many and {fewer:,} too few, for example {example}"])
        case _:
            assert_never(claim)


def _judge_rows(actual: pa.Table, undisturbed: pa.Table, repeated: pa.Table, count: int) -> Verdict:
    """Judge a path without state: each repeated delivery must have added one row."""
    import pyarrow as pa

    if repeated.num_rows != count:
        return Verdict(
            "differs", [f"the restore reported {count:,} repeated deliveries and stored {repeated.num_rows:,} of them"]
        )
    reported = repeated.select(undisturbed.schema.names).cast(undisturbed.schema)
    verdict = compare_outputs(Rows(), actual, pa.concat_tables([undisturbed, reported]))
    if verdict.failures:
        return Verdict("differs", [f"compared with the run without a kill + repeated rows, {verdict.failures[0]}"])
    return Verdict(f"equals the run without a kill + exactly the {count:,} reported repeated deliveries")


def _judge_last_rows(
    claim: LastRowsOfKeys, actual: pa.Table, undisturbed: pa.Table, repeated: pa.Table, count: int
) -> Verdict:
    """Judge a path with one aggregate: the last row may differ only for keys with a repeated delivery."""
    last, right = last_rows(actual, claim.keys), last_rows(undisturbed, claim.keys)
    apart = {tuple(row.values()) for row in differing_keys(last, right, claim.keys).to_pylist()}
    reported = {tuple(row.values()) for row in repeated.select(claim.origin).to_pylist()}
    if unexplained := sorted(map(str, apart - reported)):
        return Verdict(
            "differs",
            [f"{len(unexplained):,} keys without a repeated delivery differ, for example {unexplained[0]}"],
        )
    return Verdict(
        f"{len(apart):,} of {right.num_rows:,} keys differ, all of them among the keys of the {count:,} repeated "
        f"deliveries reported at {claim.aggregate!r} (an upper bound)"
    )


def _with_bound(verdict: Verdict, sink: str, report: RestoreReport) -> Verdict:
    """Return a verdict without failures: downstream of state, a repeated delivery may change any row."""
    result, count = EQUAL if not verdict.failures else f"differs ({verdict.failures[0]})", report.duplicated()
    if report.precision.get(sink) is Precision.MAY_BE_TOO_LOW:
        bound = f"downstream of an operator that keeps rows, {count:,} repeated deliveries may be too few"
    else:
        bound = f"downstream of state, the {count:,} repeated deliveries are an upper bound"
    return Verdict(f"{result}; {bound}", checked=not verdict.failures)
