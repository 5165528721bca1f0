"""The interface of an aggregate with a kernel of its own: fold, merge, read, store and restore its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import Bits, fresh_words, from_words, words
from dataflow.state.columns import Store
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers, Rows
from dataflow.state.index import Slots

__all__ = ["Fold", "StepPlace", "Rows", "Step", "Store", "Sum128Overflow", "read_word", "seen", "stored_words"]

NOT_NULL: Bits = (np.empty(0, np.uint8), 0)


class Sum128Overflow(OverflowError):
    """A sum of decimals exceeds 38 digits at row ``row``; the records add the column to the message."""

    def __init__(self, row: int) -> None:
        super().__init__(f"at row {row}")
        self.row = row


@dataclass(frozen=True, slots=True)
class StepPlace:
    """The position of an aggregate's state in a record, and its arguments.

    ``flag`` is the bit of word 0 that is set if there is a value; ``arguments`` are numbers of evaluated expressions,
    of types ``types``; ``name`` and ``dtype`` describe the result.
    """

    name: str
    dtype: pa.DataType
    word: int
    flag: int
    arguments: tuple[int, ...]
    types: tuple[pa.DataType, ...]


class Fold(ABC):
    """Changes some words of the records, for one aggregate or several; in a record without rows they are ``initial``.

    ``arguments`` are numbers of evaluated expressions. ``mergeable`` is true if the words are the complete state;
    ``kernels`` names the modules of its kernels. Callers of ``fold`` and ``merge`` must have saved the slots' rows.
    """

    name: str
    initial: tuple[int, ...]
    arguments: tuple[int, ...]
    mergeable = True
    kernels: tuple[str, ...] = ()

    @abstractmethod
    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        """Fold row i of ``inputs``, one array for each of ``arguments``, into the record of ``slots[i]``."""

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        """Fold row i of ``partials`` into the record of ``slots[i]``, before flags are merged."""
        raise NotImplementedError(f"{type(self).__name__} does not merge")

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        """Free what the records of ``slots``, each once, refer to; by default, nothing.

        Use ``readers.defer`` for what a snapshot may still read.
        """

    def shrink(self, rows: CopyOnWriteRows) -> None:
        """Give back memory that no record of ``rows`` refers to, because there are far fewer now; by default, none."""


class Step(Fold):
    """One aggregate: a fold and its result column. Its words of a record begin at ``place.word``."""

    def __init__(self, place: StepPlace) -> None:
        self.place = place
        self.name = place.name
        self.arguments = place.arguments

    @property
    def dtype(self) -> pa.DataType:
        """The type of the result."""
        return self.place.dtype

    @abstractmethod
    def read(self, records: Rows, always: int) -> pa.Array:
        """Return the column of gathered records; ``always`` holds the flags that all of them have."""

    def stored(self) -> list[pa.Field]:
        """Return the columns of a snapshot."""
        return [pa.field(f"{self.place.name}.{i}", pa.int64()) for i in range(len(self.initial))]

    def freeze(self) -> Store:
        """Return these columns of records frozen now; later changes do not affect them."""
        return Store(self._store_words)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Restore the columns that ``freeze`` stored; row i belongs to ``slots[i]``. Flags are already restored."""
        for i, column in enumerate(columns):
            records[:, self.place.word + i] = stored_words(column, self.name)

    def _store_words(self, records: Rows) -> list[pa.Array]:
        return [read_word(records, self.place.word + i, pa.int64()) for i in range(len(self.initial))]


def stored_words(column: pa.Array, name: str) -> npt.NDArray[np.int64]:
    """Return the words of a column of a checkpoint. Raises: CheckpointDamaged if one is null."""
    if column.null_count:
        raise CheckpointDamaged(f"{name}: {column.null_count} of {len(column)} stored numbers are null")
    return words(column)


def read_word(records: Rows, word: int, type_: pa.DataType) -> pa.Array:
    """Return one word of all ``records`` as an array."""
    from operators.kernels.aggregate import read_words

    values = fresh_words(len(records))
    read_words(records, word, 0, 0, values)
    return from_words(values, type_)


def seen(flag: int, records: Rows, always: int = 0) -> pa.Buffer | None:
    """Return the validity bitmap of the records that have ``flag``; None if all do."""
    if flag & ~always == 0:
        return None
    return pa.py_buffer(np.packbits(records[:, 0] & flag != 0, bitorder="little"))
