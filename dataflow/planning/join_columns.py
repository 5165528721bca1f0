"""The columns of joins: the keys, the edges of the window if there is one, then the columns of the left and right rows.

The keys have the names of the left side. A right column whose name the result has already gets a suffix.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dataflow.contracts.updates import CHANGE
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.planning.checks import columns_of, key_names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JoinColumns", "JoinKeys", "join_columns", "join_keys"]


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The columns whose values must be equal: ``left[i]`` of the left rows, ``right[i]`` of the right ones."""

    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The columns of the result that are columns of the sides, by their names in the result.

    Attributes:
        keys: the key columns, which have the names of the left side.
        left: pairs of a name in the result and the left column that it is, without the keys.
        right: likewise.
        edges: the columns between the keys and the left columns, which are of no side.
    """

    keys: JoinKeys
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...]
    edges: tuple[str, ...] = ()

    def read(self, port: int, used: set[str]) -> set[str]:
        """Return the columns of input ``port`` (0: left) that are needed for the columns ``used`` of the result."""
        keys, columns = (self.keys.left, self.left) if port == 0 else (self.keys.right, self.right)
        return {*keys, *[origin for name, origin in columns if name in used]}

    def pruned(self, used: set[str]) -> JoinColumns:
        """Return the columns without those of the sides that are not in ``used``."""
        left, right = (tuple(pair for pair in pairs if pair[0] in used) for pairs in (self.left, self.right))
        return replace(self, left=left, right=right)

    def narrowed(self, inputs: Sequence[Collection[str]], output: pa.Schema) -> pa.Schema:
        """Return the fields of ``output`` for these columns, without those that the ``inputs`` (their names) lack."""
        import pyarrow as pa

        sides = zip(map(frozenset, inputs), (self.left, self.right), strict=True)
        own = {name for names, columns in sides for name, origin in columns if origin in names}
        kept = {*self.keys.left, *self.edges, *own, CHANGE}
        return pa.schema([field for field in output if field.name in kept])

    def of(self, port: int, output: pa.Schema) -> list[tuple[str, str]]:
        """Return the pairs of input ``port`` that ``output`` has."""
        names = frozenset(output.names)
        return [pair for pair in (self.left, self.right)[port] if pair[0] in names]


def join_keys(left: pa.Schema, right: pa.Schema, where: str, on: object, left_on: object, right_on: object) -> JoinKeys:
    """Return the keys of a join.

    Args:
        left: the columns of the left rows.
        right: those of the right rows.
        where: the method, for messages.
        on: the names of columns that both sides have; None: ``left_on`` and ``right_on`` are given.
        left_on: the names of the left columns.
        right_on: those of the right columns, in the same order.

    Raises: GraphError if there are no keys, or too many; UnknownColumn; SchemaMismatch for types that differ, or that
        cannot be keys.
    """
    words = {"join_asof": ("by", "left_by", "right_by")}.get(where, ("on", "left_on", "right_on"))
    if (on is None) == (left_on is None and right_on is None) or (left_on is None) != (right_on is None):
        raise GraphError(
            f"{where}: name the columns that must be equal, either {words[0]}= if both sides have them, or {words[1]}= "
            f"and {words[2]}="
        )
    names = [
        key_names(given if isinstance(given, list | tuple) else [given], schema, f"{where}({word}=)")
        for given, schema, word in (
            [(on, left, words[0]), (on, right, words[0])]
            if on is not None
            else [(left_on, left, words[1]), (right_on, right, words[2])]
        )
    ]
    keys = JoinKeys(*names)
    if len(keys.left) != len(keys.right):
        raise GraphError(
            f"{where}: {words[1]}= has {len(keys.left)} columns and {words[2]}= has {len(keys.right)}; each needs its "
            "counterpart"
        )
    _check_types(keys, left, right, where)
    return keys


def _check_types(keys: JoinKeys, left: pa.Schema, right: pa.Schema, where: str) -> None:
    """Raise SchemaMismatch unless the types of the keys are equal and can be keys."""
    from dataflow.expressions.coercion import value_type
    from dataflow.planning.checks import check_state_keys

    for one, other in zip(keys.left, keys.right, strict=True):
        types = value_type(left.field(one).type), value_type(right.field(other).type)
        if types[0] != types[1]:
            raise SchemaMismatch(
                f"{where}: keys are compared by value, but {one!r} of the left side is {types[0]} and {other!r} of the "
                f"right side is {types[1]}; cast one of them before, as in "
                f'with_columns({{{other!r}: col({other!r}).cast("{types[0]}")}})'
            )
    check_state_keys(keys.left, left, where)


def join_columns(
    left: pa.Schema,
    right: pa.Schema,
    keys: JoinKeys,
    where: str,
    *,
    suffix: str,
    edges: Sequence[pa.Field] = (),
    optional: tuple[bool, bool] = (False, False),
) -> tuple[JoinColumns, pa.Schema]:
    """Return the columns of a join, and the schema of its rows. Dictionaries become their values.

    Args:
        left: the columns of the left rows, without ``change``.
        right: those of the right rows.
        keys: the keys.
        where: the method, for messages.
        suffix: what is put after the name of a right column if the result has that name already.
        edges: columns after the keys.
        optional: whether rows come out without a left row, and without a right row: their columns are then null.

    Raises: GraphError for two columns of one name, and for a suffix that is no text.
    """
    import pyarrow as pa

    if not isinstance(suffix, str):
        raise GraphError(f"{where}(suffix=): expected text, got {suffix!r} ({type(suffix).__name__})")
    may_be_null = any(right.field(name).nullable for name in keys.right) and optional[0]
    fields = [_plain(left.field(name), optional=may_be_null) for name in keys.left]
    fields += edges
    names = {field.name for field in fields}
    pairs: list[list[tuple[str, str]]] = [[], []]
    for port, (schema, own) in enumerate(((left, keys.left), (right, keys.right))):
        for field in schema:
            if field.name in own:
                continue
            name = field.name + suffix if port == 1 and field.name in names else field.name
            if name in names or name == CHANGE:
                raise GraphError(
                    f"{where}: the result would have two columns {name!r}, or one that is called {CHANGE!r}; it has "
                    f"the columns of both sides, [{columns_of(left)}] and [{columns_of(right)}]. Rename one with "
                    "select or with_columns before, drop it, or give another suffix="
                )
            names.add(name)
            pairs[port].append((name, field.name))
            fields.append(_plain(field, optional=optional[port]).with_name(name))
    own = tuple(field.name for field in edges)
    return JoinColumns(keys, tuple(pairs[0]), tuple(pairs[1]), own), pa.schema(fields)


def _plain(field: pa.Field, *, optional: bool) -> pa.Field:
    from dataflow.expressions.coercion import value_type

    return field.with_type(value_type(field.type)).with_nullable(field.nullable or optional)
