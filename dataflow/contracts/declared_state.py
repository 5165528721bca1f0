"""State that an operator declares, so that the engine writes, checks and restores it.

A `Stateful` operator has no ``snapshot`` of its own and does not read ``context.restored``. Its method ``state`` names
the pieces of its state, as they are now. The engine asks for them at each barrier, and once before a restore; it
restores them in this order, and then calls ``restored``::

    operator = factory(context)
    pieces = operator.state()            # with context.restored only: each piece takes what is stored of it
    operator.restored()
    operator.open()                      # as for all operators
    ...
    operator.state()                     # at each barrier

A piece is one of these:

    `Log`      rows of which a checkpoint holds what changed (`Incremental`), as those of keyed state
    `Table`    few rows, which every checkpoint holds
    `Value`    an attribute, as JSON
    `Passed`   the watermark that the operator goes by
    `Fixed`    what the pipeline says and the state depends on; another pipeline is refused

Beside each piece a checkpoint stores its `Rule`: whose rows they are, from which number on rows count, how the values
of several subtasks become one. So a reader of checkpoints needs no operator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from dataflow.contracts.incremental import Incremental
from dataflow.contracts.operator import Operator, OperatorContext, Rule, Snapshot
from dataflow.contracts.source import Json
from dataflow.errors import OTHER_PIPELINE, CheckpointDamaged, CheckpointMismatch, ContractViolation
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.untrusted import Time, damaged_by, excerpt, parsed

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.state.arrays import Numbers

__all__ = [
    "Fixed",
    "Log",
    "Passed",
    "Piece",
    "Restorable",
    "Stateful",
    "Table",
    "Value",
    "check_declared",
    "check_stored",
    "naming_state",
    "restore_state",
]


@runtime_checkable
class Restorable(Incremental, Protocol):
    """Incremental state that can be restored.

    Attributes:
        stored: the columns of each table that ``freeze`` may return. The engine compares them with those of a
            checkpoint, before any row is looked at.
    """

    @property
    def stored(self) -> Mapping[str, pa.Schema]: ...

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Take over what ``freeze`` returned: a base, then deltas, in order. Nothing was written before.

        Args:
            parts: the tables of each part, with the rows of this subtask that count.

        Raises: CheckpointDamaged if they contradict each other.
        """
        ...


@dataclass(frozen=True, slots=True)
class Log:
    """Rows of which a checkpoint holds what changed.

    Attributes:
        state: the state itself.
        keys: the first columns of each table, which decide the key group of a row; 0: rows belong to no key, and each
            is kept in exactly one subtask.
        shared: whether all subtasks have equal rows, so that one copy is enough.
        low: a column of numbers, and the least number that counts now; rows with smaller ones have left the state, and
            a checkpoint may still hold them. Of tables without the column all rows count. None: all rows count.
        counts: columns of numbers that count up from 0, if the next row gets the number after the greatest one.
        owners: the columns of each aggregate, or of each state that a process function declares; several may have a
            column together. Tables with such columns are restored by the names of their columns.
        initial: the values that columns of an owner begin with in rows of a checkpoint that lacks the owner; null, if a
            column is not named.

    >>> import pyarrow as pa
    >>> from dataflow.state.keyed_state import KeyedState
    >>> Log(KeyedState(pa.schema({"k": pa.int64()}), pa.schema({})), keys=1).rule
    Rule(kind='log', keys=1)
    """

    state: Restorable
    keys: int
    shared: bool = False
    low: tuple[str, int] | None = None
    counts: Sequence[str] = ()
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    initial: Mapping[str, object] = field(default_factory=dict)

    @property
    def rule(self) -> Rule:
        return Rule("log", keys=self.keys, shared=self.shared, low=self.low, owners=self.owners)

    def _restore(self, stored: Snapshot, name: str, context: OperatorContext, rule: Rule) -> None:
        from dataflow.state.parts import arranged, check_parts, completed, counting, owned
        from dataflow.state.widening import widened

        parts: Any = stored.logs[name]
        columns = self.state.stored
        if added := _added(self.owners, stored):
            parts = [
                {n: completed(table, columns.get(n), added, self.initial) for n, table in part.items()}
                for part in parts
            ]
        if self.owners:
            parts = [{n: arranged(table, columns.get(n)) for n, table in part.items()} for part in parts]
        parts = [{n: widened(table, columns.get(n), self.keys) for n, table in part.items()} for part in parts]
        check_parts(parts, columns, self.counts)
        if self.keys:
            mine = context.key_groups, context.max_key_groups
            parts = [{n: owned(table, self.keys, *mine) for n, table in part.items()} for part in parts]
        if rule.low is not None:
            _check_bound(rule.low[0], columns)
            parts = [{n: counting(table, *rule.low) for n, table in part.items()} for part in parts]
        self.state.restore(parts)


@dataclass(frozen=True, slots=True)
class Table:
    """Few rows, which every checkpoint holds.

    Attributes:
        read: returns the rows now, in memory of their own.
        restore: takes the stored rows of this subtask.
        stored: their columns.
        keys: the first columns, which decide the key group of a row; 0: rows belong to no key, and each is kept in
            exactly one subtask.
        owners: as those of a `Log`.
        initial: as `Log.initial`.
    """

    read: Callable[[], pa.Table]
    restore: Callable[[pa.Table], None]
    stored: pa.Schema
    keys: int
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)
    initial: Mapping[str, object] = field(default_factory=dict)

    @property
    def rule(self) -> Rule:
        return Rule("table", keys=self.keys, owners=self.owners)

    def _restore(self, stored: Snapshot, name: str, context: OperatorContext, rule: Rule) -> None:
        from dataflow.state.parts import arranged, check_columns, completed, owned
        from dataflow.state.widening import widened

        table: Any = stored.tables[name]
        if added := _added(self.owners, stored):
            table = completed(table, self.stored, added, self.initial)
        if self.owners:
            table = arranged(table, self.stored)
        table = widened(table, self.stored, self.keys)
        check_columns(table, self.stored)
        if self.keys:
            table = owned(table, self.keys, context.key_groups, context.max_key_groups)
        self.restore(table)


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute of ``owner``, stored as JSON.

    Attributes:
        owner: the object, usually the operator itself.
        name: the name of its attribute.
        type: what the stored value is parsed as: any type that msgspec knows.
        how: how the values of several subtasks become one: "equal": they are; the "greatest" counts; the "least", which
            is None if any is None; "all": true if all are, of lists place by place; "split": the value maps splits of a
            source, and each keeps its entry.
        waiting: with how="split", the name of the value that a split without an entry takes.

    >>> class Counter:
    ...     rows = 3
    >>> Value(Counter(), "rows", int, "greatest").rule
    Rule(kind='value', how='greatest')
    """

    owner: object
    name: str
    type: Any
    how: Literal["equal", "greatest", "least", "all", "split"]
    waiting: str = ""

    @property
    def rule(self) -> Rule:
        return Rule("value", how=self.how, waiting=self.waiting)

    def _restore(self, stored: Snapshot, name: str, context: OperatorContext, rule: Rule) -> None:
        setattr(self.owner, self.name, parsed(self.type, stored.values[name], "its value"))


@dataclass(slots=True)
class Passed:
    """The watermark that an operator goes by, the only copy of it.

    Attributes:
        watermark: the last one that came, in microseconds since 1970; None: none has come.

    >>> passed = Passed()
    >>> passed.advance(7), passed.advance(9), passed.watermark, passed.less(5)
    (None, 7, 9, 4)
    """

    watermark: int | None = None

    def advance(self, watermark: int) -> int | None:
        """Take note of a watermark; return the one before."""
        before, self.watermark = self.watermark, watermark
        return before

    @property
    def reached(self) -> int:
        """The watermark; before the first one, the least number of 64 bits."""
        return _LEAST if self.watermark is None else self.watermark

    def less(self, lateness: int) -> int:
        """Return the watermark less ``lateness`` (microseconds), within 64 bits.

        Before the first watermark it is the least number, and the last watermark stays: it is after every time.
        """
        reached = self.reached
        return reached if reached == MAX_WATERMARK else max(reached - lateness, _LEAST)

    def closed(self, lateness: int, keys: Sequence[pa.Array]) -> int | Numbers:
        """Return the time before which rows with ``keys`` are late, in microseconds: one for all, or one for each.

        Args:
            lateness: how long rows are taken that come after the watermark, in microseconds.
            keys: the key columns of the rows; none: all rows have one key.
        """
        return self.less(lateness)

    @property
    def rule(self) -> Rule:
        return _PASSED

    def _restore(self, stored: Snapshot, name: str, context: OperatorContext, rule: Rule) -> None:
        self.watermark = parsed(Time | None, stored.values[name], "the watermark")


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that must be equal at a restore: what the state depends on, and no setting of the operator shows."""

    value: Json

    @property
    def rule(self) -> Rule:
        return _FIXED

    def _restore(self, stored: Snapshot, name: str, context: OperatorContext, rule: Rule) -> None:
        if stored.values[name] != self.value:
            raise CheckpointMismatch(
                f"the checkpoint has {excerpt(stored.values[name])}, the pipeline has {self.value!r}; {OTHER_PIPELINE}"
            )


def _added(owners: Mapping[str, Sequence[str]], stored: Snapshot) -> set[str]:
    """Return the columns of owners that the checkpoint lacks."""
    return {name for owner in stored.added for name in owners.get(owner, ())}


_LEAST: Final = -(2**63)
_PASSED: Final = Rule("passed")
_FIXED: Final = Rule("fixed")

Piece = Log | Table | Value | Passed | Fixed


class Stateful(Operator):
    """An operator that declares its state. See the module for the order of calls.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Count(flow.Stateful):
    ...     rows = 0
    ...     def state(self):
    ...         return {"rows": flow.Value(self, "rows", int, "greatest")}
    ...     def process(self, port, batch, out):
    ...         self.rows += batch.num_rows
    ...     def finish(self, out):
    ...         out.emit(pa.record_batch({"rows": [self.rows]}))
    >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"x": ["a", "b"]})))
    >>> stream.apply(Count, schema=pa.schema({"rows": pa.int64()})).collect()["rows"].to_pylist()
    [2]
    """

    @abstractmethod
    def state(self) -> Mapping[str, Piece]:
        """Return the pieces of the state by name, as they are now. They are restored in this order.

        It is asked at each barrier, because an operator may replace a piece by another one of the same kind.
        """

    def converted(self, stored: Snapshot) -> Snapshot:
        """Return the state of a checkpoint in the form that it has now. By default, it is the same.

        Called before the pieces are restored. The form may differ if other aggregates were added or removed.

        Raises: CheckpointMismatch if the state cannot have that form.
        """
        return stored

    def restored(self) -> None:
        """Derive what follows from the restored pieces. Called before ``open``.

        Raises: CheckpointDamaged if the pieces contradict each other.
        """

    def snapshot(self) -> Snapshot:
        """Return the pieces as they are now, with their rules. Not to be replaced, only to be extended."""
        values: dict[str, Json] = {}
        tables: dict[str, pa.Table | pa.RecordBatchReader] = {}
        logs: dict[str, Any] = {}
        pieces = self.state()
        if not isinstance(pieces, Mapping):
            raise _no_pieces(self, pieces)
        for name, piece in pieces.items():
            try:
                match piece:
                    case Log():
                        logs[name] = piece.state
                    case Table():
                        tables[name] = piece.read()
                    case Value():
                        values[name] = _as_json(getattr(piece.owner, piece.name))
                    case Passed():
                        values[name] = piece.watermark
                    case Fixed():
                        values[name] = piece.value
                    case _:
                        raise _no_pieces(self, pieces)
            except Exception as error:
                error.add_note(f"raised while state {name!r} was read")
                raise
        return Snapshot(values, tables, logs, {name: piece.rule for name, piece in pieces.items()})


def _as_json(value: object) -> Json:
    try:
        found: Json = msgspec.to_builtins(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContractViolation(
            f"the value {excerpt(value)} cannot be stored as JSON: {error}; convert numbers of numpy with int(...) or "
            "float(...), times with .isoformat(), sets to lists"
        ) from error
    return found


def _no_pieces(operator: Stateful, returned: object) -> ContractViolation:
    return ContractViolation(
        f"{type(operator).__name__}.state() returns a dict of flow.Log, Table, Value, Passed and Fixed by name, "
        f"but returned {excerpt(returned)}"
    )


def restore_state(operator: Operator, context: OperatorContext) -> None:
    """Restore the pieces of an operator, which is new, from ``context.restored``; nothing if there is no such state.

    Raises: CheckpointMismatch for the state of other settings or columns; CheckpointDamaged for state that no
        checkpoint of this operator has. Both name operator and piece.
    """
    stored = context.restored
    if not isinstance(operator, Stateful) or stored is None:
        return
    stored = operator.converted(stored)
    pieces = {name: piece for name, piece in operator.state().items() if not _is_added(name, piece, stored)}
    _check_rules(stored, {name: piece.rule for name, piece in pieces.items()}, context.name)
    for name, piece in pieces.items():
        with naming_state(f"{context.name}: {name}", piece.state if isinstance(piece, Log) else operator):
            piece._restore(stored, name, context, stored.rules[name])
    with naming_state(context.name, operator):
        operator.restored()


def _is_added(name: str, piece: Piece, stored: Snapshot) -> bool:
    """Return whether a piece belongs to owners alone that the checkpoint lacks: it stays as it is, empty."""
    owners = piece.owners if isinstance(piece, Log | Table) else {}
    return name not in stored.rules and bool(owners) and {*owners} <= {*stored.added}


def check_stored(operator: Stateful, context: OperatorContext) -> None:
    """Check the stored rows of a user's operator. Of the library's operators, the plan compares the columns.

    Raises: CheckpointMismatch for columns of other names, which would be restored as other values; and for rows of
        other subtasks, which would be dropped: then ``keys`` does not name the columns by which rows come here.
    """
    stored = context.restored
    if stored is None:
        return
    for name, piece in operator.state().items():
        with naming_state(f"{context.name}: {name}", operator):
            logs: Any = stored.logs
            added = _added(piece.owners, stored) if isinstance(piece, Log | Table) else set()
            if isinstance(piece, Log):
                for part in logs.get(name, ()):
                    for table_name, table in part.items():
                        _check_rows(table, piece.state.stored.get(table_name), added, piece.keys, context)
            elif isinstance(piece, Table) and name in stored.tables:
                _check_rows(stored.tables[name], piece.stored, added, piece.keys, context)


def _check_rows(table: Any, expected: pa.Schema | None, added: set[str], keys: int, context: OperatorContext) -> None:
    from dataflow.state.parts import owned

    if expected is not None and {*table.column_names} | added != {*expected.names} | added:
        raise CheckpointMismatch(
            f"the checkpoint has the columns {table.column_names}, the operator declares {expected.names}; "
            f"{OTHER_PIPELINE}"
        )
    if keys:
        foreign = table.num_rows - owned(table, keys, context.key_groups, context.max_key_groups).num_rows
        if foreign:
            raise CheckpointMismatch(
                f"{foreign} of {table.num_rows} stored rows belong to other subtasks, so keys={keys} does not say by "
                "which columns rows come here: declare the columns of key_by(...), or of the sink's keys, first and in "
                "their order"
            )


def _check_rules(stored: Snapshot, own: Mapping[str, Rule], where: str) -> None:
    """Check that the checkpoint has the pieces ``own``, and nothing else.

    Raises: CheckpointMismatch if its rules are others; CheckpointDamaged if it lacks a piece that has a rule.
    """
    found, expected = (
        {name: msgspec.structs.replace(rule, low=None, owners={}) for name, rule in rules.items()}
        for rules in (stored.rules, own)
    )
    if differing := [name for name in {**found, **expected} if found.get(name) != expected.get(name)]:
        name = differing[0]
        was, now = (f"{rules[name]!r}" if name in rules else "no state" for rules in (found, expected))
        raise CheckpointMismatch(
            f"{where}: the checkpoint has {was} for {excerpt(name)}, the operator declares {now}; {OTHER_PIPELINE}"
        )
    places = {"log": stored.logs, "table": stored.tables}
    kept = {name for name, rule in own.items() if name in places.get(rule.kind, stored.values)}
    lacking = own.keys() - kept
    more = {*stored.logs, *stored.tables, *stored.values} - own.keys()
    if lacking or more:
        raise CheckpointDamaged(
            f"{where}: the checkpoint lacks {excerpt(sorted(lacking)) if lacking else 'nothing'} of its state, and has "
            f"{excerpt(sorted(more)) if more else 'nothing'} beside it"
        )


def check_declared(operator: Stateful, snapshot: Snapshot) -> None:
    """Check that a checkpoint with the state of a user's operator could be restored.

    Raises: ContractViolation for a piece that does not have what is declared of it.
    """
    pieces, what = operator.state(), type(operator).__name__
    if list(snapshot.rules) != list(pieces):
        raise ContractViolation(
            f"{what}.snapshot() returned the pieces {list(snapshot.rules)}, but state() declares {list(pieces)}: a "
            "snapshot() of your own returns that of super()"
        )
    for name, piece in pieces.items():
        try:
            parsed(Rule, _as_json(piece.rule), "its rule")
            match piece:
                case Log():
                    _check_log(piece)
                case Table():
                    _check_table(piece, snapshot.tables[name])
                case Value():
                    _check_value(piece, snapshot.values[name], pieces)
                case Passed():
                    parsed(Time | None, snapshot.values[name], "the watermark")
                case Fixed():
                    if piece.value != msgspec.json.decode(msgspec.json.encode(piece.value)):
                        raise CheckpointMismatch(f"JSON does not return {excerpt(piece.value)} as it is: use lists")
        except (CheckpointMismatch, CheckpointDamaged, ContractViolation) as error:
            raise ContractViolation(
                f"{what}.state() declares {name!r}, but a checkpoint with it could not be restored: {error}"
            ) from error


def _check_table(piece: Table, table: object) -> None:
    import pyarrow as pa

    from dataflow.state.parts import check_columns

    if not isinstance(table, pa.Table):
        raise CheckpointMismatch(f"read() returned a {type(table).__name__}, no pyarrow.Table")
    check_columns(table, piece.stored)
    if table.column_names != piece.stored.names:
        raise CheckpointMismatch(f"read() returned the columns {table.column_names}, declared are {piece.stored.names}")
    _check_keys(piece.keys, {"": piece.stored})
    _check_names("owners", [name for names in piece.owners.values() for name in names], {"": piece.stored})


def _check_value(piece: Value, value: Json, pieces: Mapping[str, Piece]) -> None:
    parsed(piece.type, value, "its value")
    if piece.waiting and not isinstance(pieces.get(piece.waiting), Value):
        raise CheckpointMismatch(f"waiting= names {piece.waiting!r}, which is no Value")
    if piece.how == "split" and not isinstance(value, dict):
        raise CheckpointMismatch(f"how='split' needs a mapping by the id of a split, and the value is {excerpt(value)}")
    if piece.how == "all" and not all(each is True or each is False for each in _each(value)):
        raise CheckpointMismatch(f"how='all' needs a bool, or a list of bools, and the value is {excerpt(value)}")


def _each(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else [value]


def _check_names(what: str, names: Sequence[str], stored: Mapping[str, pa.Schema]) -> None:
    known = {name for schema in stored.values() for name in schema.names}
    lacking = names if isinstance(names, str) else [name for name in names if name not in known]
    if lacking:
        raise CheckpointMismatch(f"{what}= names {lacking!r}, which are no columns of its tables; give a list of names")


def _check_log(log: Log) -> None:
    if not isinstance(log.state, Restorable):
        raise CheckpointMismatch(f"a {type(log.state).__name__} has no freeze(), durable(), restore() and stored")
    stored = log.state.stored
    _check_keys(log.keys, stored)
    _check_names("counts", log.counts, stored)
    _check_names("owners", [name for names in log.owners.values() for name in names], stored)
    if log.low is not None:
        _check_bound(log.low[0], stored)


def _check_bound(column: str, stored: Mapping[str, pa.Schema]) -> None:
    types = [schema.field(column).type for schema in stored.values() if column in schema.names]
    if not types or any(str(type_) != "int64" for type_ in types):
        raise CheckpointDamaged(f"its bound is for column {excerpt(column)}, which has no int64 numbers")


def _check_keys(keys: int, stored: Mapping[str, pa.Schema]) -> None:
    places = zip(*[schema.names for schema in stored.values()], strict=False)
    common = [names[0] for names in takewhile(lambda names: len({*names}) == 1, places)]
    if keys > len(common):
        raise CheckpointMismatch(f"keys={keys}, but the first columns that its tables have in common are {common}")


@contextmanager
def naming_state(what: str, code: object) -> Iterator[None]:
    """Name operator and piece in errors about stored state.

    Args:
        what: operator and piece.
        code: the object that reads the state. Any error of the library's own code is damage, because it is ready for
            all that it writes. Errors of a user's code pass, with a note.
    """
    try:
        yield
    except (CheckpointMismatch, CheckpointDamaged) as error:
        raise type(error)(f"{what}: {error}") from error
    except Exception as error:
        if type(code).__module__.partition(".")[0] not in ("dataflow", "operators"):
            error.add_note(f"raised while {what} was restored")
            raise
        with damaged_by(what):
            raise
