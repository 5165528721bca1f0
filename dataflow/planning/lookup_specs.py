"""The spec of lookups; the package ``operators.lookup`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Meaning
from dataflow.errors import BarrierflowWarning
from dataflow.planning.join_columns import JoinColumns
from dataflow.planning.join_specs import refuse_updates
from dataflow.planning.lookup_tables import LoadedTable, LookupTable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Lookup", "LookupHow", "OnChange"]

LookupHow = Literal["inner", "left"]
OnChange = Literal["refuse", "reload"]


@dataclass(frozen=True, slots=True)
class Lookup(Spec):
    """Joins each row with the rows of a table that have its key.

    Attributes:
        columns: where the columns of the result come from; the right ones are those of the table.
        how: whether a row without a counterpart comes out (``"left"``).
        table: the table, which `loaded` reads.
        on_change: whether a restore accepts a changed table.
    """

    is_users = False
    stateful = False  # the hash of the table is among the settings of the plan, which a checkpoint has
    row_wise = True
    sees_batches = False

    columns: JoinColumns
    how: LookupHow
    table: LookupTable | LoadedTable
    on_change: OnChange

    def arguments(self) -> tuple[Any, ...]:
        return (self,)

    def detail(self) -> dict[str, Json]:
        keys = self.columns.keys
        detail: dict[str, Json] = {"left_on": list(keys.left), "right_on": list(keys.right), "how": self.how}
        if isinstance(self.table, LoadedTable):
            detail["table"] = {"rows": self.table.count, "hashes": dict(self.table.hashes)}
        return detail

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return self.columns.read(0, used) | (used & {CHANGE})

    def pruned(self, used: set[str]) -> Lookup:
        columns = self.columns.pruned(used)
        read = columns.read(1, used)
        return replace(self, columns=columns, table=self.table.select([n for n in self.table.columns if n in read]))

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return self.columns.narrowed([inputs[0].names, self.table.columns], output)

    def carrying(self, column: str) -> Lookup:
        return replace(self, columns=replace(self.columns, left=(*self.columns.left, (column, column))))

    @property
    def accepts_reloaded(self) -> bool:  # type: ignore[override]
        return self.on_change == "reload"

    def reloaded(self, stored: Mapping[str, Any]) -> str:
        """Return what has changed in the columns that both runs have read."""
        table, then = self.table, stored.get("table")
        if then is None or not isinstance(table, LoadedTable):
            return ""
        differences = [
            f"column {name!r} has other values, or another order"
            for name, hash_ in table.hashes.items()
            if then["hashes"].get(name, hash_) != hash_
        ]
        if then["rows"] != table.count:
            differences = [f"it had {then['rows']:,} rows, now {table.count:,}"]
        return f"the table {table.text} has changed: {', '.join(differences)}" if differences else ""

    def loaded(self, name: str, notify: Callable[[type[BarrierflowWarning], str], None]) -> Lookup:
        return replace(self, table=self.table.loaded(name, notify))

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        refuse_updates(inputs, word)
        return inputs[0]
