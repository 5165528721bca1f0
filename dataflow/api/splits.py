"""``split``: each row goes to the first of several streams whose condition holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from dataflow.api.columns import ColumnMethods
from dataflow.errors import GraphError, did_you_mean
from dataflow.expressions import Expr, col, when
from dataflow.expressions.conditionals import Conditional
from dataflow.planning.checks import check_condition
from dataflow.planning.specs import Filter

if TYPE_CHECKING:
    from dataflow.api.streams import Stream

__all__ = ["Branches", "SplitMethods"]

BRANCH: Final = "barrierflow:branch"
"""The column with the number of the branch that takes a row; -1: none does."""


class Branches(Mapping[str, "Stream"]):
    """The streams of `Stream.split` by name, in the order in which they were given.

    A stream is added to the pipeline when it is first asked for. Rows of the others are dropped.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})))
    >>> list(rows.split({"one": flow.col("x") == 1}, rest="others"))
    ['one', 'others']
    """

    def __init__(self, numbered: ColumnMethods, numbers: Mapping[str, int]) -> None:
        self._numbered = numbered
        self._numbers = dict(numbers)
        self._streams: dict[str, Stream] = {}

    def __getitem__(self, name: str) -> Stream:
        """Return the stream called ``name``. Raises: KeyError, which lists the names that there are."""
        if name not in self._numbers:
            hint = did_you_mean(name, self._numbers) if isinstance(name, str) else ""
            raise KeyError(f"split: there is no stream {name!r}{hint}; there are {list(self._numbers)}")
        if name not in self._streams:
            self._streams[name] = self._stream(name)
        return self._streams[name]

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"Branches({self._numbered.name!r}, {list(self._numbers)})"

    def _stream(self, name: str) -> Stream:
        numbered = self._numbered
        label = f"{numbered.name}.{''.join('_' if c in _REFUSED else c for c in name)}"
        condition = Filter(col(BRANCH) == self._numbers[name])
        with numbered._pipeline.graph.all_or_none():
            taken = numbered._then(condition, numbered.schema, f"{label}.filter", None, None, time=numbered._time)
            columns = [col(column) for column in taken._columns.names if column != BRANCH]
            return taken._project(columns, label, None, None)


_REFUSED: Final = "/[]\\\0"
"""Characters that a name of an operator must not have."""


class SplitMethods(ColumnMethods):
    """The method of `Stream` that splits it."""

    def split(
        self,
        conditions: Mapping[str, str | Expr],
        *,
        rest: str | None = "other",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Branches:
        """Return several streams by name: each row is in the first one whose condition is true.

        A condition is evaluated once for a batch. If it raises an error there, it is evaluated again without the rows
        that earlier conditions took.

        Args:
            conditions: by name, boolean expressions, or names of boolean columns. Null counts as false.
            rest: the name of the stream of the rows for which no condition is true; None: there is none.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a mapping from name to stream. The streams have the columns, the event time and the watermark of this
            one, and signed changes if this one has. Those that the pipeline does not use are dropped.

        Raises:
            GraphError: no condition is given, a name is no text or is given twice, or the rows are updates.
            SchemaMismatch: a condition is not boolean.
            UnknownColumn: it reads a column that the stream does not have.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"price": [5, 200, None, 20]})))
        >>> price = flow.col("price")
        >>> parts = rows.split({"big": price > 100, "middle": price > 10}, rest="other")
        >>> {name: part.collect()["price"].to_pylist() for name, part in parts.items()}
        {'big': [200], 'middle': [20], 'other': [5, None]}
        """
        if not isinstance(conditions, Mapping):
            raise GraphError(
                f"split: expected a mapping from names to conditions, such as {{'big': col('price') > 100}}, got "
                f"{conditions!r} ({type(conditions).__name__})"
            )
        if not conditions:
            raise GraphError("split: no condition is given; give at least one, such as {'big': col('price') > 100}")
        for tag in [*conditions, *([] if rest is None else [rest])]:
            if not isinstance(tag, str) or not tag:
                raise GraphError(f"split: the names of streams must be text and not empty, got {tag!r}")
        if rest in conditions:
            raise GraphError(
                f"split(rest={rest!r}): a condition has this name; give the rest a name of its own, or rest=None"
            )
        self._refuse("split", updates="a row and the one that replaces it could be in different streams")
        numbers = {tag: number for number, tag in enumerate(conditions)}
        branch: Conditional | None = None
        for tag, given in conditions.items():
            condition = check_condition(given, self.schema, f"split of {tag!r}")
            branch = (when if branch is None else branch.when)(condition).then(numbers[tag])
        assert branch is not None, "there is a condition"
        if rest is not None:
            numbers[rest] = len(numbers)
        columns = [*map(col, self._columns.names), branch.otherwise(numbers.get(rest or "", -1)).alias(BRANCH)]
        return Branches(self._project(columns, "split", name, parallelism), numbers)
