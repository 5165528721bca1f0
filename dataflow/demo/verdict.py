"""Judge the restored run with the oracle: exactly once, or at least once with every repeated delivery reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dataflow.compare.verdict import EQUAL, Verdict
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.demo.job import AGGREGATE
from dataflow.demo.oracle import Delays, differences, expected, last_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["judge"]


def judge(mode: Mode, output: Path, undisturbed: Path, rows: pa.Table, restored: RestoreReport) -> Verdict:
    """Return the verdict on the output of a restored run.

    Repeated deliveries are counted at the aggregate, the first operator with state. So the comparison is exact: the
    restored run must have the result of the input plus the repeated deliveries.

    Args:
        mode: the checkpoint mode.
        output: directory with the output of the restored run.
        undisturbed: directory with the output of the run without a kill.
        rows: the input rows that reach the aggregate.
        restored: the report of the restore.
    """
    plain, actual = last_rows(undisturbed), last_rows(output)
    failures = _compare("the run without a kill and pyarrow over the input", plain, expected(rows))
    if mode is Mode.UNALIGNED_PERSISTED and not restored.in_flight_rows:
        failures.append("expected in-flight rows in the checkpoint, but the restore put none back")
    count, repeated = restored.duplicated(AGGREGATE), restored.rows(AGGREGATE)
    if mode.guarantee is Guarantee.EXACTLY_ONCE:
        if count:
            failures.append(f"expected no repeated delivery, the restore reported {count:,}")
        failures += _compare("the restored run and the run without a kill", actual, plain)
        return Verdict(EQUAL, failures)
    if repeated is None or repeated.num_rows != count:
        stored = 0 if repeated is None else repeated.num_rows
        failures.append(
            f"expected repeated deliveries, all of them stored; the restore reported {count:,} and stored {stored:,}"
        )
        return Verdict("equals nothing", failures)
    both = expected(_append(rows, repeated))
    failures += _compare("the restored run and pyarrow over input + repeated deliveries", actual, both)
    more = _total(actual) - _total(plain)
    if more != count:
        failures.append(
            f"the restored run counted {more:,} more deliveries than rows, but the restore reported {count:,} repeated "
            "deliveries"
        )
    return Verdict(f"equals the run over input + {count:,} repeated deliveries", failures)


def _append(rows: pa.Table, repeated: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([rows, repeated.select(rows.schema.names).cast(rows.schema)])


def _total(delays: Delays) -> int:
    return sum(delay.flights for delay in delays.values())


def _compare(names: str, actual: Delays, wanted: Delays) -> list[str]:
    """Return one sentence if the results differ, else none."""
    sentences = differences(actual, wanted)
    return [f"{names} differ in {len(sentences)} of {len(wanted)} keys: {sentences[0]}"] if sentences else []
