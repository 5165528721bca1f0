"""Whether what a restore made is right: exactly once, or at least once with the report accounting for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dataflow.compare.claims import AnyRows, Claim, LastRows, Rows, Unsettled
from dataflow.compare.rows import difference, differing_keys, last_rows, same_but_for_rounding
from dataflow.runtime.restore.duplicate_precision import Precision

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["EQUAL", "Verdict", "equal", "judge"]

EQUAL = "equals the undisturbed run"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the output of one sink, or of all, is found to be; it holds where there are no ``failures``."""

    result: str
    failures: Sequence[str] = ()

    @staticmethod
    def of(verdicts: Mapping[str, Verdict]) -> Verdict:
        """One for all sinks, by name; a result they share is said once."""
        results = {name: verdict.result for name, verdict in verdicts.items()}
        same = len(set(results.values())) == 1
        result = next(iter(results.values())) if same else "; ".join(f"{n}: {r}" for n, r in results.items())
        return Verdict(result, tuple(f"sink {n!r}: {failure}" for n, v in verdicts.items() for failure in v.failures))


def judge(sink: str, claim: Claim, found: pa.Table, undisturbed: pa.Table, report: RestoreReport | None) -> Verdict:
    """Compare what was ``found`` after a restore with the ``undisturbed`` output.

    ``report`` is that of a restore that may deliver rows twice; None: no row may be there twice.
    """
    if report is None or not report.duplicated():
        return equal(claim, found, undisturbed)
    match claim:
        case Rows() if (again := report.rows(sink)) is not None:
            return _row_wise(found, undisturbed, again, report.duplicated(sink))
        case LastRows(first=True, aggregate=aggregate) if (again := report.rows(aggregate)) is not None:
            return _by_key(claim, found, undisturbed, again, report.duplicated(aggregate))
        case Rows() | LastRows(first=True):
            return equal(claim, found, undisturbed)
        case LastRows() | AnyRows():
            return Verdict(_bound(equal(claim, found, undisturbed), sink, report))
        case Unsettled(reason):
            return Verdict(f"not compared: {reason}")
        case _:
            assert_never(claim)


def equal(claim: Claim, found: pa.Table, wanted: pa.Table) -> Verdict:
    """Whether two outputs are the same, as far as ``claim`` allows to say."""
    match claim:
        case Unsettled(reason):
            return Verdict(f"not compared: {reason}")
        case LastRows(keys=keys, updates=updates):
            last, right = last_rows(found, keys), last_rows(wanted, keys)
            apart = differing_keys(last, right, keys)
            if not apart.num_rows and (updates or found.num_rows == last.num_rows):
                return Verdict(EQUAL)
            if not apart.num_rows:
                return Verdict("differs", [f"{found.num_rows:,} rows for {last.num_rows:,} keys"])
            example = apart.slice(0, 1).to_pylist()[0]
            return Verdict(
                "differs", [f"the last rows of {apart.num_rows:,} of {right.num_rows:,} keys differ, as of {example}"]
            )
        case Rows() | AnyRows():
            apart, more, fewer = difference(found, wanted)
            if not apart.num_rows or (isinstance(claim, AnyRows) and same_but_for_rounding(found, wanted)):
                return Verdict(EQUAL)
            example = apart.slice(0, 1).to_pylist()[0]
            return Verdict("differs", [f"{more:,} rows too many and {fewer:,} too few, such as {example}"])
        case _:
            assert_never(claim)


def _row_wise(found: pa.Table, undisturbed: pa.Table, again: pa.Table, count: int) -> Verdict:
    """Row-wise paths: the undisturbed rows and the reported ones, exactly."""
    import pyarrow as pa

    if again.num_rows != count:
        return Verdict("differs", [f"the restore reported {count:,} rows and stored {again.num_rows:,} of them"])
    reported = again.select(undisturbed.schema.names).cast(undisturbed.schema)
    verdict = equal(Rows(), found, pa.concat_tables([undisturbed, reported]))
    if verdict.failures:
        return Verdict("differs", [f"against undisturbed + reported rows, {verdict.failures[0]}"])
    return Verdict(f"undisturbed + exactly the {count:,} reported rows")


def _by_key(claim: LastRows, found: pa.Table, undisturbed: pa.Table, again: pa.Table, count: int) -> Verdict:
    """Behind the first aggregate: only a key with reported rows may have another last row."""
    last, right = last_rows(found, claim.keys), last_rows(undisturbed, claim.keys)
    apart = {tuple(row.values()) for row in differing_keys(last, right, claim.keys).to_pylist()}
    reported = {tuple(row.values()) for row in again.select(claim.origin).to_pylist()}
    if unexplained := sorted(map(str, apart - reported)):
        return Verdict(
            "differs", [f"{len(unexplained):,} keys without a reported row differ, such as {unexplained[0]}"]
        )
    return Verdict(
        f"{len(apart):,} of {right.num_rows:,} keys differ, all among the {count:,} rows reported at "
        f"{claim.aggregate!r} (an upper bound)"
    )


def _bound(verdict: Verdict, sink: str, report: RestoreReport) -> str:
    same, count = EQUAL if not verdict.failures else f"differs ({verdict.failures[0]})", report.duplicated()
    if report.precision.get(sink) is Precision.MAY_BE_TOO_LOW:
        return f"{same}; after an operator of yours with state, {count:,} reported rows may be too few"
    return f"{same}; behind state the {count:,} reported rows are an upper bound"
