"""Small batches are joined while they wait, so the task that takes them pays the fixed cost of one batch.

Every batch costs each operator some 100 microseconds, whatever it holds. Joining delays nothing: rows are joined only
while they wait, and the reader takes what there is when it comes. Which rows are joined depends on speed, so it must
not matter: rows of two colours, or with a control element between them, are never joined (``Channel``), nor batches of
a source by which event time moves (``SourceInput``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from dataflow.contracts.tuning import Choice

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DICTIONARIES",
    "MOST_ROWS",
    "SEEN",
    "Apart",
    "JoinPolicy",
    "JoinSmall",
    "Pile",
    "has_fixed_width",
    "joining",
    "may_join",
]

MOST_ROWS: Final = 8_192
"""The most rows that are joined: from here on, the fixed cost of a batch is a tenth of its whole cost."""
MOST_CHANNELS: Final = 8
"""The most channels for which more rows are joined before they are dealt out."""
MOST_BYTES: Final = 1 << 20
"""The most bytes that are joined, because every join copies."""

SEEN: Final = "an operator after them sees how they are cut"
DICTIONARIES: Final = "their dictionaries would have to be united"


class Pile:
    """Batches with the same columns that wait together.

    >>> import pyarrow as pa
    >>> pile = Pile([pa.record_batch({"x": [1]}), pa.record_batch({"x": [2, 3]})])
    >>> len(pile), pile.joined()["x"].to_pylist()
    (3, [1, 2, 3])
    """

    __slots__ = ("_batches", "_bytes", "_measured", "_rows")

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = sum([batch.num_rows for batch in batches])
        self._bytes = self._measured = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        self._bytes += sum([batch.nbytes for batch in self._batches[self._measured :]])
        self._measured = len(self._batches)
        return self._bytes

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        return self._batches[0].schema

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch with the same columns."""
        self._batches.append(batch)
        self._rows += batch.num_rows

    def joined(self) -> pa.RecordBatch:
        """Return all rows as one batch."""
        import pyarrow as pa

        return pa.concat_batches(self._batches) if len(self._batches) > 1 else self._batches[0]


class JoinPolicy(Protocol):
    """Decides which batches are joined. The answer may be any, because it must not matter."""

    def room(self, rows: int) -> int:
        """Return how many more rows may join ``rows`` that wait; 0: none."""
        ...


class Apart:
    """Joins nothing; ``why`` is the reason, for ``RunResult.tuning``."""

    def __init__(self, why: str = "the runner joins nothing") -> None:
        self.why = why

    @classmethod
    def over(cls, channels: int) -> Apart:
        """Return the rule for rows that are dealt out over ``channels``."""
        return cls()

    def room(self, rows: int) -> int:
        return 0


class JoinSmall:
    """Joins up to ``most`` rows, but does not copy what is large already.

    >>> JoinSmall().room(1_000), JoinSmall().room(5_000)
    (7192, 0)
    """

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most

    @classmethod
    def over(cls, channels: int) -> JoinSmall:
        """Return the rule for rows that are dealt out over ``channels``, where a batch becomes as many small ones.

        >>> JoinSmall.over(4).room(1_000)
        31768
        """
        return cls(MOST_ROWS * min(channels, MOST_CHANNELS))

    def room(self, rows: int) -> int:
        return self._most - rows if 2 * rows <= self._most else 0


def may_join(waiting: pa.RecordBatch | Pile, batch: pa.RecordBatch, join: JoinPolicy, *, fixed_width: bool) -> bool:
    """Return whether ``batch`` joins the rows before it. Bytes need not be counted if all columns are numbers."""
    return (
        0 < len(batch) <= join.room(len(waiting))
        and waiting.schema.equals(batch.schema, check_metadata=True)
        and (fixed_width or waiting.nbytes + batch.nbytes <= MOST_BYTES)
    )


def joining(join: JoinPolicy, batches: int, joined: int) -> Choice:
    """Return the report on an input to which ``batches`` came, of which ``joined`` were joined to earlier ones."""
    if isinstance(join, Apart):
        return Choice("joining", "off", f"{join.why}; batches: {{batches:,}}", {"batches": batches})
    reason = "of {batches:,} batches, {joined:,} were joined to the one before them while they waited"
    return Choice("joining", f"up to {join.room(0):,} rows", reason, {"batches": batches, "joined": joined})


def has_fixed_width(schema: pa.Schema) -> bool:
    """Return whether every row of ``schema`` has the same few bytes."""
    import pyarrow as pa

    return all([pa.types.is_primitive(type_) for type_ in schema.types])
