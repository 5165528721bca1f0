"""State that an operator saves by hand, at another parallelism: the arguments of ``Operator.rescale``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.operator import Snapshot

__all__ = ["RescaleContext", "StatePart"]


@dataclass(frozen=True, slots=True)
class StatePart:
    """What one old subtask saved.

    Attributes:
        subtask: its number.
        snapshot: what its ``snapshot()`` returned; a log has its parts.
        key_groups: the key groups whose rows came to it.
        watermark: the last watermark that it had passed on, in microseconds since 1970; None: none.
    """

    subtask: int
    snapshot: Snapshot
    key_groups: range
    watermark: int | None


@dataclass(frozen=True, slots=True)
class RescaleContext:
    """The new subtask for which ``Operator.rescale`` makes the state.

    Attributes:
        name: the name of the operator.
        subtask: the number of the new subtask.
        parallelism: how many new subtasks there are.
        old_parallelism: how many subtasks saved the state.
        key_groups: the key groups (of ``max_key_groups``) whose rows come to the new subtask.
        max_key_groups: the number of key groups, which stays the same.
        keys: the columns by whose values rows come here; empty if they do not come by key.
        splits: the splits of the source that the new subtask reads, if it is a task of a source.
    """

    name: str
    subtask: int
    parallelism: int
    old_parallelism: int
    key_groups: range
    max_key_groups: int
    keys: Sequence[str] = ()
    splits: Sequence[str] = ()

    def owned(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table`` whose keys belong to the new subtask; it has the columns ``keys``.

        Raises: ConfigurationError if rows do not come by key, or a key column is missing.

        >>> import pyarrow as pa
        >>> parts = [RescaleContext("sums", i, 2, 1, range(64 * i, 64 * i + 64), 128, ["k"]) for i in range(2)]
        >>> rows = pa.table({"sum": range(100), "k": range(100)})
        >>> sum([part.owned(rows).num_rows for part in parts])
        100
        """
        from dataflow.errors import ConfigurationError
        from dataflow.state.parts import owned

        missing = [key for key in self.keys if key not in table.column_names]
        if missing or not self.keys:
            why = f"the table has no column {missing[0]!r}" if missing else "its rows do not come by key"
            raise ConfigurationError(
                f"operator {self.name!r}: owned() divides rows by the columns {list(self.keys)}, but {why}; "
                "divide the state by hand"
            )
        others = [name for name in table.column_names if name not in self.keys]
        ordered = table.select([*self.keys, *others])
        return owned(ordered, len(self.keys), self.key_groups, self.max_key_groups).select(table.column_names)
