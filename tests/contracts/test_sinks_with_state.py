"""Users' sinks declare state like operators do: it comes back once, in each mode, and what does not fit is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.declared_state import Piece, naming_state
from dataflow.errors import CheckpointDamaged, CheckpointMismatch, ContractViolation
from dataflow.runners.faults import Faults
from dataflow.state.keyed_state import KeyedState
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import LOG
from dataflow.testing import Ledger, ledger_sink
from tests.checkpoints import forged_object, handle_of

NUMBERS = [x * 7 % 11 for x in range(80)]
KEY = pa.schema({"k": pa.int64()})


class Totals(flow.Stateful):
    """Writes to ``target`` how often each key came so far: without its state, the total would begin anew."""

    def __init__(self, context: flow.OperatorContext, target: dict[int, int], died: list[int]) -> None:
        self.target, self.died, self.rows = target, died, 0
        self.totals = KeyedState(KEY, pa.schema({"n": pa.int64()}))
        self.name = "rows"

    def state(self) -> Mapping[str, Piece]:
        return {"totals": flow.Log(self.totals, keys=1), self.name: flow.Value(self, "rows", int, "greatest")}

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.rows += batch.num_rows
        for key, more in Counter(batch["k"].to_pylist()).items():
            slots, _ = self.totals.insert([pa.array([key])])
            self.target[key] = (self.totals.read(slots)["n"][0].as_py() or 0) + more
            self.totals.write(slots, pa.record_batch({"n": [self.target[key]]}))
        if self.died and self.rows >= self.died[0]:
            raise RuntimeError(f"killed after {self.died.pop()} rows")


class TotalsSink(flow.Sink):
    guarantee = flow.Guarantee.EXACTLY_ONCE
    keys = ("k",)

    def __init__(self, target: dict[int, int], died: Sequence[int] = (), name: str = "rows") -> None:
        self.shown, self.died, self.name = target, [*died], name

    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        writer = Totals(context, self.shown, self.died)
        writer.name = self.name
        return writer


def totals(sink: flow.Sink) -> flow.Pipeline:
    with flow.Pipeline("totals") as p:
        p.source(op.from_arrow(pa.table({"k": NUMBERS}), batch_rows=3, splits=2), name="in").sink(sink, name="out")
    return p


@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted"])
def test_a_killed_sink_goes_on_with_its_state(mode: Any) -> None:
    target: dict[int, int] = {}
    store = flow.MemoryStore()
    settings = flow.Checkpointing(store, every="1ms", mode=mode)
    with pytest.raises(RuntimeError, match="killed after 20 rows"):
        totals(TotalsSink(target, [20])).run(flow.SimulatedRunner(2), checkpoint=settings)
    result = totals(TotalsSink(target)).run(checkpoint=settings, restore="latest")
    assert result.restore_report is not None
    assert target == Counter(NUMBERS)


@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted"])
def test_a_sink_that_crashes_again_and_again_counts_each_row_once(mode: Any) -> None:
    target: dict[int, int] = {}
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode)
    crashing = flow.SimulatedRunner(seed=4, faults=Faults(crashes=4))
    result = totals(TotalsSink(target)).run(crashing, parallelism=2, checkpoint=settings)
    assert result.restarts >= 2
    assert target == Counter(NUMBERS)


def test_what_does_not_fit_is_refused_with_sink_and_piece() -> None:
    settings = flow.Checkpointing(flow.MemoryStore())
    totals(TotalsSink({})).run(checkpoint=settings)
    with pytest.raises(CheckpointMismatch, match=r"out: the checkpoint has .* for 'rows', the operator declares"):
        totals(TotalsSink({}, name="lines")).run(checkpoint=settings)


def with_a_key_twice(values: object, tables: dict[str, pa.Table]) -> None:
    tables["/logs/0/keys"] = pa.concat_tables([tables["/logs/0/keys"]] * 2)


def test_damage_of_a_sinks_state_names_sink_and_piece(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path)
    totals(TotalsSink({})).run(checkpoint=settings)
    store = DirectoryStore(tmp_path)
    newest = store.checkpoints()[-1]
    forged_object(store.folder(newest).path, handle_of(store, newest, "out[0]", LOG), with_a_key_twice)
    with pytest.raises(CheckpointDamaged, match=r"out: totals: a part has 22 keys, but only 11 distinct ones"):
        totals(TotalsSink({})).run(checkpoint=settings)


class Staging(flow.Stateful, flow.TwoPhaseWriter):
    """Stages rows with their numbers, which go on after a restore."""

    def __init__(self, context: flow.OperatorContext, ledger: Ledger) -> None:
        self.context, self.ledger, self.rows = context, ledger, 0
        self.batches: list[pa.RecordBatch] = []

    def state(self) -> Mapping[str, Piece]:
        return {"rows": flow.Value(self, "rows", int, "greatest")}

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.batches.append(pa.record_batch({"n": range(self.rows, self.rows + batch.num_rows)}))
        self.rows += batch.num_rows

    def prepare(self, checkpoint: int) -> Sequence[Mapping[str, str]]:
        staged, self.batches = self.batches, []
        return [self.ledger.prepare(checkpoint, self.context.subtask, staged)] if staged else []


def test_a_writer_in_two_phases_has_state_beside_its_handles() -> None:
    ledger = Ledger()

    class Numbered(type(ledger_sink(ledger))):
        def writer(self, context: flow.OperatorContext) -> Staging:
            return Staging(context, ledger)

    settings = flow.Checkpointing(flow.MemoryStore(), every="500us")
    crashing = flow.SimulatedRunner(seed=3, faults=Faults(crashes=9))
    assert totals(Numbered(ledger)).run(crashing, checkpoint=settings).restarts
    assert ledger.rows() == Counter((n,) for n in range(len(NUMBERS)))


def wrong(make: Callable[[Totals], Any]) -> flow.Sink:
    """A sink whose writer declares what ``make`` returns."""

    class Wrong(TotalsSink):
        def writer(self, context: flow.OperatorContext) -> flow.Operator:
            writer = Totals(context, {}, [])
            writer.state = lambda: make(writer)  # type: ignore[method-assign]
            return writer

    return Wrong({})


FEW = pa.table({"k": [1]})


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda it: it.rows, r"Totals.state\(\) returns a dict of .*, but returned 80"),
        (lambda it: {"rows": it.rows}, r"returns a dict of flow.Log, .* but returned {'rows': 80}"),
        (
            lambda it: {"x": flow.Value(it, "rows", str, "equal")},
            "declares 'x', .*its value: Expected `str`",
        ),
        (lambda it: {"x": flow.Value(it, "rows", int, "sum")}, "declares 'x', .*its rule: Invalid enum value 'sum'"),
        (lambda it: {"x": flow.Value(it, "rows", int, "split", "y")}, "declares 'x', .*waiting= names 'y'"),
        (lambda it: {"x": flow.Log(it.totals, keys=2)}, r"declares 'x', .*keys=2, .* first columns .* \['k'\]"),
        (lambda it: {"x": flow.Log(it.totals, 1, low=("n", 2**40))}, None),
        (lambda it: {"x": flow.Log(it.totals, 1, low=("n", 3.5))}, "declares 'x', .*its rule: Expected `int`"),
        (lambda it: {"x": flow.Log(it.totals, 1, counts=["z"])}, "declares 'x', .*counts= names .'z'."),
        (lambda it: {"x": flow.Log(it.totals, 1, counts="n")}, "declares 'x', .*counts= names 'n'"),
        (lambda it: {"x": flow.Log(it.totals, 1, owners={"a": ["z"]})}, "declares 'x', .*owners= names .'z'."),
        (
            lambda it: {"x": flow.Value(SimpleNamespace(n=np.int64(3)), "n", int, "equal")},
            "cannot be stored as JSON: .*int",
        ),
        (
            lambda it: {"x": flow.Table(FEW.to_reader, print, FEW.schema, 0)},
            "declares 'x', .*read.. returned a RecordBatchRe",
        ),
        (lambda it: {"x": flow.Fixed(("us", "ns"))}, "declares 'x', .*use lists"),
        (lambda it: {"x": flow.Passed(3.5)}, "declares 'x', .*the watermark: Expected `int"),
        (lambda it: {"x": flow.Value(it, "rows", int, "split")}, "declares 'x', .*a mapping by the id of a split"),
        (lambda it: {"x": flow.Value(it, "rows", int, "all")}, "declares 'x', .*a bool, or a list of bools"),
        (lambda it: {"x": flow.Log(it.totals, 1, low=("z", 3))}, "declares 'x', .*column 'z', which has no int64"),
        (lambda it: {"x": flow.Table(lambda: FEW, print, pa.schema({"z": pa.string()}), 0)}, "declares 'x', .*'z'"),
    ],
)
def test_a_piece_that_could_not_be_restored_is_refused_before_it_is_stored(make: Any, problem: str | None) -> None:
    settings = flow.Checkpointing(flow.MemoryStore())
    with nullcontext() if problem is None else pytest.raises(ContractViolation, match=problem):
        totals(wrong(make)).run(flow.SimulatedRunner(1), checkpoint=settings)


def test_a_snapshot_that_leaves_pieces_out_is_refused() -> None:
    class Replaced(TotalsSink):
        def writer(self, context: flow.OperatorContext) -> flow.Operator:
            writer = Totals(context, {}, [])
            writer.snapshot = lambda: flow.Snapshot({"rows": writer.rows})  # type: ignore[method-assign]
            return writer

    settings = flow.Checkpointing(flow.MemoryStore())
    with pytest.raises(ContractViolation, match=r"snapshot\(\) returned the pieces \[\], .*returns that of super"):
        totals(Replaced({})).run(flow.SimulatedRunner(1), checkpoint=settings)


def test_errors_of_a_users_own_code_over_its_state_pass_and_those_of_the_library_are_damage() -> None:
    with pytest.raises(KeyError) as raised, naming_state("out: rows", object()):
        raise KeyError("rows")
    assert raised.value.__notes__ == ["raised while out: rows was restored"]
    expected = pytest.raises(CheckpointDamaged, match=r"^out: totals: its state is not as it was written")
    with expected, naming_state("out: totals", KeyedState(KEY, KEY)):
        raise KeyError("rows")
