"""Whether the restored run is right, by the oracle: exactly once, or with every repeated row accounted for."""

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
    """Compare what the job wrote to ``output``, restored as ``restored`` says, with ``undisturbed`` and the oracle.

    ``rows`` are the input rows that reach the aggregate. The reported rows are deliveries to the aggregate, the first
    stateful operator of the path, so there the claim is exact: input plus reported rows give the restored run's result.
    """
    plain, found = last_rows(undisturbed), last_rows(output)
    failures = _apart("the undisturbed run and pyarrow over the input", plain, expected(rows))
    if mode is Mode.UNALIGNED_PERSISTED and not restored.in_flight_rows:
        failures.append("expected rows in flight in the checkpoint, the restore re-injected none")
    count, again = restored.duplicated(AGGREGATE), restored.rows(AGGREGATE)
    if mode.guarantee is Guarantee.EXACTLY_ONCE:
        if count:
            failures.append(f"expected no row to be delivered twice, the restore reported {count:,}")
        failures += _apart("the restored run and the undisturbed one", found, plain)
        return Verdict(EQUAL, failures)
    if again is None or again.num_rows != count:
        stored = 0 if again is None else again.num_rows
        failures.append(
            f"expected duplicates, all of them stored; the restore reported {count:,} and stored {stored:,}"
        )
        return Verdict("equals nothing", failures)
    failures += _apart("the restored run and pyarrow over input + reported rows", found, expected(_both(rows, again)))
    more = _total(found) - _total(plain)
    if more != count:
        failures.append(f"the restored run counted {more:,} flights too many, the restore reported {count:,}")
    return Verdict(f"equals the run over input + {count:,} reported rows", failures)


def _both(rows: pa.Table, again: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([rows, again.select(rows.schema.names).cast(rows.schema)])


def _total(delays: Delays) -> int:
    return sum(delay.flights for delay in delays.values())


def _apart(what: str, found: Delays, wanted: Delays) -> list[str]:
    sentences = differences(found, wanted)
    return [f"{what} differ in {len(sentences)} of {len(wanted)} keys: {sentences[0]}"] if sentences else []
