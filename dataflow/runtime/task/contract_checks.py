"""Check values that users' operators, sinks and sources return, and name the one that broke its contract.

Otherwise the engine would fail later, on another thread and in another operator, or lose rows silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dataflow.contracts.declared_schema import DeclaredSchema
from dataflow.contracts.declared_state import Stateful, check_declared, check_stored, restore_state
from dataflow.contracts.incremental import Incremental
from dataflow.contracts.operator import Operator, OperatorContext, Snapshot
from dataflow.contracts.row_errors import ERRORS
from dataflow.contracts.sink import Handle, TwoPhaseSink, TwoPhaseWriter
from dataflow.contracts.source import END, EndOfSplit, Json, Source, Split, SplitReader
from dataflow.errors import ContractViolation
from dataflow.planning.graph import Node
from dataflow.planning.operator_table import make_operator
from dataflow.planning.specs import Write
from dataflow.state.codec import check_json

__all__ = [
    "Declared",
    "build_operator",
    "check_emission",
    "check_handles",
    "check_offset",
    "check_opened",
    "check_polled",
    "check_reader",
    "check_rejected",
    "check_snapshot",
    "check_splits",
    "declared_outputs",
    "naming_sink",
]

Declared = Mapping[str | None, DeclaredSchema]
"""The schemas that an operator declared, by tag (None: the main output)."""


# --- operators


def build_operator(node: Node, context: OperatorContext, task: str) -> Operator:
    """Return the operator of ``node`` for subtask ``task``; its declared state is restored.

    Raises: the constructor's errors, with operator and subtask as a note; ContractViolation if it is not an operator.
    """
    try:
        operator: Any = make_operator(node.spec, context)
    except Exception as error:
        error.add_note(f"raised while operator {node.name!r} was built, subtask {task}")
        raise
    where = f"operator {node.name!r}, subtask {task}"
    if not isinstance(operator, Operator):
        advice = "Sink.writer returns an Operator" if isinstance(node.spec, Write) else "return an Operator"
        raise ContractViolation(f"{where}: expected an Operator, its factory returned {_shown(operator)}; {advice}")
    if isinstance(node.spec, Write):
        commits = isinstance(node.spec.sink, TwoPhaseSink)
        if commits != isinstance(operator, TwoPhaseWriter):
            raise ContractViolation(
                f"{where}: the writer of {type(node.spec.sink).__name__} is a {type(operator).__name__}, but a "
                "TwoPhaseSink, and no other sink, must have a TwoPhaseWriter; otherwise rows are never committed"
            )
    if node.is_users and isinstance(operator, Stateful):
        check_stored(operator, context)
    restore_state(operator, context)
    return operator


def declared_outputs(node: Node, task: str) -> Declared | None:
    """Return the outputs that ``node`` declared; None for operators of the library, which need no check."""
    where = f"operator {node.name!r}, subtask {task}"
    if isinstance(node.spec, Write):
        return {}
    if not node.is_users:
        return None
    advice = f"change the operator, or schema= or sides= of its {node.spec.declared_in}"
    outputs: dict[str | None, pa.Schema] = {None: node.schema, **node.sides}  # type: ignore[dict-item]
    tags = {tag: "" if tag is None else f" with tag {tag!r}" for tag in outputs}
    return {
        tag: DeclaredSchema(schema, f"{where}: what it emitted{tags[tag]}", advice, node.encoded if tag is None else ())
        for tag, schema in outputs.items()
    }


def check_opened(returned: object, where: str) -> None:
    """Raise ContractViolation for an ``open`` that did not run, because it is a generator or ``async``."""
    if isinstance(returned, Iterator | Awaitable):
        raise ContractViolation(
            f"{where}: open() must be a plain method, but it returned {_shown(returned)}, so it did not run; "
            "remove yield or async from it"
        )


def check_emission(returned: object, method: str, where: str) -> None:
    """Raise ContractViolation unless ``method`` returned None or an iterator."""
    if returned is not None and not isinstance(returned, Iterator):
        raise ContractViolation(
            f"{where}: {method}() returns None or a generator, but returned {_shown(returned)}; "
            "send rows with out.emit(batch)"
        )


def check_snapshot(operator: Operator, returned: object, where: str) -> None:
    """Raise ContractViolation unless ``snapshot`` returned a Snapshot that a checkpoint can hold."""
    if not isinstance(returned, Snapshot):
        raise ContractViolation(f"{where}: snapshot() returns a Snapshot, but returned {_shown(returned)}")
    if not isinstance(returned.values, Mapping) or not isinstance(returned.tables, Mapping):
        raise ContractViolation(
            f"{where}: values and tables of a Snapshot are dicts, but are {_shown(returned.values)} and "
            f"{_shown(returned.tables)}"
        )
    if not isinstance(returned.logs, Mapping):
        raise ContractViolation(f"{where}: logs of a Snapshot are a dict, but are {_shown(returned.logs)}")
    _check_json(returned.values, "values", f"{where}: snapshot()")
    for name, table in returned.tables.items():
        if not isinstance(name, str) or not isinstance(table, pa.Table | pa.RecordBatchReader):
            raise ContractViolation(
                f"{where}: tables of a Snapshot are a pa.Table or pa.RecordBatchReader by name, but tables[{name!r}] "
                f"is {_shown(table)}; make a table of batches with pa.Table.from_batches([...])"
            )
    for name, log in returned.logs.items():
        if not isinstance(name, str) or not isinstance(log, Incremental):
            raise ContractViolation(
                f"{where}: logs of a Snapshot are state with freeze() and durable() by name, but logs[{name!r}] is "
                f"{_shown(log)}"
            )
    if isinstance(operator, Stateful):
        check_declared(operator, returned)


def check_handles(returned: Any, where: str) -> tuple[Handle, ...]:
    """Return the handles of a transaction. Raises: ContractViolation unless each one is a dict of JSON."""
    if not isinstance(returned, Iterable) or isinstance(returned, Mapping | str | bytes):
        raise ContractViolation(
            f"{where}: prepare() returns a sequence of handles, () for none, but returned {_shown(returned)}"
        )
    handles = tuple(returned)
    for number, handle in enumerate(handles):
        if not isinstance(handle, Mapping):
            raise ContractViolation(f"{where}: a handle is a dict of JSON, but prepare() returned {_shown(handle)}")
        _check_json(handle, f"handle {number}", f"{where}: prepare()")
    return handles


@contextmanager
def naming_sink(name: str, sink: TwoPhaseSink, call: str) -> Iterator[None]:
    """Add a note to an error that ``call`` of ``sink`` raises, with the sink's name in the graph."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {call}() of sink {name!r} ({type(sink).__name__})")
        raise


# --- sources


def check_splits(source: Source, name: str) -> list[Split]:
    """Return the splits of a fresh start.

    Raises: the errors of ``splits``, with the source as a note; ContractViolation unless each has a unique id and
    JSON.
    """
    where = f"source {name!r} ({type(source).__name__})"
    try:
        returned: Any = source.splits()
    except Exception as error:
        error.add_note(f"raised while {where} listed its splits")
        raise
    if not isinstance(returned, Iterable) or isinstance(returned, Mapping | str | bytes):
        raise ContractViolation(f"{where}: splits() returns a sequence of Split, but returned {_shown(returned)}")
    splits: list[Any] = list(returned)
    ids: set[str] = set()
    for split in splits:
        if not isinstance(split, Split) or not isinstance(split.id, str) or not isinstance(split.info, Mapping):
            raise ContractViolation(
                f"{where}: splits() returns Split(id, info), a string and a dict of JSON, but one is {_shown(split)}"
            )
        if split.id in ids:
            raise ContractViolation(
                f"{where}: two splits have the id {split.id!r}; ids must be unique, because offsets are stored by id"
            )
        ids.add(split.id)
        _check_json(split.info, "info", f"{where}: split {split.id!r}")
    return splits


def check_reader(returned: object, where: str) -> None:
    """Raise ContractViolation unless ``Source.reader`` returned a SplitReader."""
    if not isinstance(returned, SplitReader):
        raise ContractViolation(f"{where}: reader() returns a SplitReader, but returned {_shown(returned)}")


def check_polled(returned: object, where: Callable[[], str]) -> None:
    """Raise ContractViolation unless ``poll`` returned a record batch, None or END."""
    if type(returned) is not pa.RecordBatch and returned is not None and not isinstance(returned, EndOfSplit):
        raise ContractViolation(
            f"{where()}: poll() returns a pa.RecordBatch, None or {END}, but returned {_shown(returned)}"
        )


def check_rejected(returned: Any, source: Source, where: str) -> None:
    """Raise ContractViolation unless ``rejected`` returned a batch for a side output that ``source`` declares."""
    if type(returned) is not pa.RecordBatch:
        raise ContractViolation(
            f"{where}: rejected() returns a pa.RecordBatch or None, but returned {_shown(returned)}"
        )
    if ERRORS not in source.sides:
        raise ContractViolation(
            f"{where}: rejected() returned {returned.num_rows} rows, but the source has no side output {ERRORS!r}; "
            "declare it in Source.sides"
        )


def check_offset(offset: Json, where: Callable[[], str]) -> None:
    """Raise ContractViolation unless ``offset`` is JSON."""
    if offset is not None and not (type(offset) is str and offset.isascii()):
        _check_json(offset, "offset", where())


def _check_json(value: object, name: str, where: str) -> None:
    try:
        check_json(value, name)
    except (TypeError, ValueError) as error:
        raise ContractViolation(
            f"{where}: {error}; convert numbers of numpy with int(...) or float(...), times with .isoformat(), "
            "sets to lists"
        ) from None


def _shown(value: object) -> str:
    """Return the type of a value for a message.

    >>> _shown(pa.table({})), _shown([1, 2])
    ('a pyarrow.lib.Table', 'a list')
    """
    kind = type(value)
    if value is None or isinstance(value, bool):
        return repr(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
