"""The specs of the operators that only plans of a batch have. The package ``operators.batch`` implements them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataflow.contracts.execution import ORDER, RowOrder
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.planning.specs import AddRows, Project

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AddChange", "DropPlace", "NumberRows", "Sorted"]


@dataclass(frozen=True, slots=True)
class NumberRows(Spec):
    """Adds `ORDER`, the place of each row in the sources. ``source`` is the number of its source in the plan."""

    is_users = False
    is_helper = True
    stateful = False
    row_wise = True
    sees_batches = False
    numbers_rows = True

    source: int

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return used - {ORDER}

    def takes_encoded(self, column: str) -> bool:
        return True

    def origin_of(self, column: str) -> str | None:
        return None if column == ORDER else column


@dataclass(frozen=True, slots=True)
class AddChange(AddRows):
    """Makes rows signed changes that are added, after an operator that emits each row once only in a batch."""

    is_helper = True


@dataclass(frozen=True, slots=True)
class DropPlace(Project):
    """Drops `ORDER`, for operators that do not need it."""

    is_helper = True


@dataclass(frozen=True, slots=True)
class Sorted(Spec):
    """Gives the rows to the operator of ``inner`` at the end of the input, in ``order``.

    ``passes_on``: whether the operator passes on the place in the source; otherwise it does not get it.
    """

    inner: Spec
    order: RowOrder
    passes_on: bool

    is_users = False
    sees_batches = False
    keeps_batches = False

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def kind_words(self) -> str:
        return self.inner.kind_words

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return self.inner.stateful

    @property
    def row_order(self) -> RowOrder:  # type: ignore[override]
        return self.order

    @property
    def late_outputs(self) -> Any:  # type: ignore[override]
        return self.inner.late_outputs

    def arguments(self) -> tuple[Any, ...]:
        return (self,)

    def detail(self) -> dict[str, Json]:
        return self.inner.detail()

    def reads(self, port: int, used: set[str]) -> Iterable[str] | None:
        names = self.inner.reads(port, used)
        return None if names is None else {*names, *self.order.columns}

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return self.inner.narrowed([self.inner_schema(inputs[0]), *inputs[1:]], output)

    def pruned(self, used: set[str]) -> Spec:
        return type(self)(self.inner.pruned(used), self.order, self.passes_on)

    def origin_of(self, column: str) -> str | None:
        return self.inner.origin_of(column)

    def inner_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the rows that the operator gets, given those that come in."""
        place = self.order.place
        if self.passes_on or place is None:
            return schema
        return schema.remove(schema.get_field_index(place))
