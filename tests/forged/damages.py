"""Damages of declared state, one at a time: what a restore must refuse, and what it may only refuse by name.

The states of a checkpoint are damaged after they were read, so that nothing but the declarations can find it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa

import dataflow as flow
from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged, CheckpointMismatch, JobTimeout
from dataflow.runtime.restore import find_checkpoint
from dataflow.runtime.task.parts import TaskState
from dataflow.store.directory import DirectoryStore
from tests.forged.pipelines import PIPELINES

__all__ = ["Damage", "damages", "read_states", "wrong_outcome"]

TURNS = 40
"""Turns of the simulation after a restore that refused nothing."""


@dataclass(frozen=True)
class Damage:
    """The damaged states of all tasks; ``certain``: no state can be like this, so it must be refused."""

    operator: str
    piece: str
    what: str
    certain: bool
    states: Mapping[str, TaskState]


def read_states(home: Path) -> tuple[Path, Mapping[str, TaskState]]:
    """Return the newest checkpoint of ``home``, and its states."""
    store = DirectoryStore(home / "ckpt")
    newest = store.checkpoints()[-1]
    manifest = store.manifest(newest)
    return store.folder(newest).path, find_checkpoint.states_of(manifest, lambda part: store.read(newest, part))


def damages(states: Mapping[str, TaskState]) -> Iterator[Damage]:
    """Yield damages of the first subtask of each operator that declares its state, and has some."""
    done = set()
    for task, state in states.items():
        for operator, snapshot in state.operators.items():
            if operator in done or not snapshot.rules or not _has_rows(snapshot):
                continue
            done.add(operator)
            for piece, what, certain, changed in _of(snapshot):
                others = {**state.operators, operator: changed}
                yield Damage(operator, piece, what, certain, {**states, task: replace(state, operators=others)})


def _has_rows(snapshot: Snapshot) -> bool:
    logs: Any = snapshot.logs
    return not logs or any(table.num_rows for parts in logs.values() for part in parts for table in part.values())


def _of(snapshot: Snapshot) -> Iterator[tuple[str, str, bool, Snapshot]]:
    yield "", "no state", True, Snapshot()
    for name, rule in snapshot.rules.items():
        for what, changed in _rules(rule):
            yield name, what, True, replace(snapshot, rules={**snapshot.rules, name: changed})
        kinds: dict[str, Any] = {"log": "logs", "table": "tables"}
        field = kinds.get(rule.kind, "values")
        pieces = getattr(snapshot, field)
        yield name, "missing", True, replace(snapshot, **{field: {k: v for k, v in pieces.items() if k != name}})
        for what, certain, piece in _pieces(rule.kind, pieces[name]):
            yield name, what, certain, replace(snapshot, **{field: {**pieces, name: piece}})


def _rules(rule: Any) -> Iterator[tuple[str, Any]]:
    yield "more keys", msgspec.structs.replace(rule, keys=rule.keys + 1)
    yield "another kind", msgspec.structs.replace(rule, kind="passed" if rule.kind != "passed" else "value")
    if rule.low is not None:
        yield "bound of nothing", msgspec.structs.replace(rule, low=("nothing", 1))


def _pieces(kind: str, piece: Any) -> Iterator[tuple[str, bool, Any]]:
    match kind:
        case "log":
            yield "no base", False, piece[1:]
            for at in {0, len(piece) - 1}:
                part = piece[at]
                for name, table in part.items():
                    for what, certain, changed in _tables(table):
                        yield f"{name} {at}: {what}", certain, [*piece[:at], {**part, name: changed}, *piece[at + 1 :]]
                yield f"{at}: more tables", True, [*piece[:at], {**part, "more": pa.table({})}, *piece[at + 1 :]]
                if at == 0 or len(part) == 1:
                    yield f"{at}: no tables", True, [*piece[:at], {}, *piece[at + 1 :]]
        case "table":
            yield from _tables(piece)
        case _:
            for odd in ("odd", 1.5, [None], {"a": {"b": None}}):
                yield f"is {odd}", True, odd


def _tables(table: pa.Table) -> Iterator[tuple[str, bool, pa.Table]]:
    for at, field in enumerate(table.schema):
        column, others = table.column(at), list(table.columns)

        def changed(values: pa.Array, at: int = at, field: pa.Field = field, others: list[Any] = others) -> pa.Table:
            fields = table.schema.set(at, pa.field(field.name, values.type))
            return pa.Table.from_arrays([*others[:at], values, *others[at + 1 :]], schema=fields)

        odd = pa.int64() if pa.types.is_string(field.type) else pa.string()
        yield f"column {at} is {odd}", True, changed(pa.nulls(table.num_rows, odd))
        yield f"no column {at}", True, table.remove_column(at)
        if table.num_rows:
            yield f"column {at} is null", not field.nullable, changed(pa.nulls(table.num_rows, field.type))
        if table.num_rows and field.metadata:  # messages of Arrow, each with a nested value
            yield f"column {at} is no message", True, changed(pa.array([b"odd"] * table.num_rows))
        if table.num_rows and pa.types.is_integer(field.type):
            for extreme in (2 ** (field.type.bit_width - 1) - 1, -(2 ** (field.type.bit_width - 1)), -1):
                first = pa.array([extreme], field.type)
                yield f"column {at} is {extreme}", False, changed(pa.chunked_array([first, *column.slice(1).chunks]))
    if table.num_rows:
        yield "rows are missing", False, table.slice(1)
        yield "each row twice", False, pa.concat_tables([table, table])


def wrong_outcome(home: Path, name: str, checkpoint: Path, damage: Damage) -> str | None:
    """Restore a damaged checkpoint; return what is wrong with the outcome, None: nothing."""
    where = f"{damage.operator}: {damage.piece}: {damage.what}"
    runner = flow.SimulatedRunner(5, max_turns=TURNS)
    try:
        with mock.patch.object(find_checkpoint, "states_of", return_value=damage.states):
            PIPELINES[name](home).run(runner, restore=str(checkpoint), parallelism=2, take_back=True)
    except (CheckpointDamaged, CheckpointMismatch) as error:
        named = damage.operator in str(error) and (damage.piece in str(error) or not damage.certain)
        return None if named else f"{where} was refused without its name: {error}"
    except JobTimeout:
        pass
    except Exception as error:
        return f"{where} raised {error!r}"
    return f"{where} was restored" if damage.certain else None
