"""The interface of an aggregate with a kernel of its own: fold, merge, read, store and restore its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import Bits, Mask, Numbers, fresh_words, from_words, words
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers, Rows
from dataflow.state.index import Slots
from dataflow.state.ordered_values import OrderedValues

__all__ = ["Flags", "Fold", "Frozen", "Rows", "Step", "StepPlace", "Sum128Overflow", "Words"]
__all__ += ["frozen_lists", "put_words", "read_word", "restore_bit", "restore_flag", "seen", "stored_lists"]
__all__ += ["stored_words"]

NOT_NULL: Bits = (np.empty(0, np.uint8), 0)


class Sum128Overflow(OverflowError):
    """A sum of decimals exceeds 38 digits at row ``row``; the records add the column to the message."""

    def __init__(self, row: int) -> None:
        super().__init__(f"at row {row}")
        self.row = row


Words = Sequence[tuple[str, pa.DataType]]
"""Name and type of each word of a record, as a checkpoint has them."""


class Flags:
    """Flags in one word of some records, read once for all columns of a checkpoint."""

    def __init__(self, records: Rows, word: int = 0) -> None:
        self._words = records[:, word].copy()
        self._always = int(np.bitwise_and.reduce(self._words)) if len(records) else 0

    def bitmap(self, flag: int) -> pa.Buffer | None:
        """Return the validity bitmap of the records that have ``flag``; None if all do, or 0 is no flag."""
        return None if flag & ~self._always == 0 else pa.py_buffer(self._bits(flag))

    def column(self, flag: int) -> pa.Array:
        """Return whether each record has ``flag``."""
        return pa.Array.from_buffers(pa.bool_(), len(self._words), [None, pa.py_buffer(self._bits(flag))])

    def _bits(self, flag: int) -> npt.NDArray[np.uint8]:
        if flag & ~self._always == 0:
            return np.full(-(-len(self._words) // 8), 255, np.uint8)
        return np.packbits(self._words & flag != 0, bitorder="little")


@dataclass(frozen=True, slots=True)
class Frozen:
    """The columns that a checkpoint has of frozen records. Both functions may be called on any thread.

    Attributes:
        columns: returns the columns of some records with these flags.
        text_bytes: returns the bytes of text and lists in these columns, as ``dataflow.state.columns.FrozenColumns``.
    """

    columns: Callable[[Rows, Flags], list[pa.Array]]
    text_bytes: Callable[[Rows], int] = lambda records: 0


@dataclass(frozen=True, slots=True)
class StepPlace:
    """The position of an aggregate's state in a record, and its arguments.

    ``flag`` is the bit of word 0 that is set if there is a value; ``arguments`` are numbers of evaluated expressions,
    of types ``types``; ``name`` and ``dtype`` describe the result. The names of its columns in a checkpoint begin with
    ``state``.
    """

    name: str
    dtype: pa.DataType
    word: int
    flag: int
    arguments: tuple[int, ...]
    types: tuple[pa.DataType, ...]
    state: str


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

    @abstractmethod
    def stored(self) -> list[pa.Field]:
        """Return the columns of a checkpoint. Those of records without a value are null, if they have a flag for it."""

    @abstractmethod
    def freeze(self) -> Frozen:
        """Return these columns of records frozen now; later changes do not affect them."""

    @abstractmethod
    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Write the columns that ``freeze`` made into empty ``records``, with their flags; row i is of ``slots[i]``.

        Raises: CheckpointDamaged for columns that ``freeze`` cannot make.
        """


class Step(Fold):
    """One aggregate: a fold and its result column. Its words of a record begin at ``place.word``."""

    words: Words = ()
    """How a checkpoint has the words, unless a step stores something else."""

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
        place = self.place
        return [pa.field(f"{place.state}/{name}", type_, nullable=place.flag != 0) for name, type_ in self.words]

    def freeze(self) -> Frozen:
        flag, word, types = self.place.flag, self.place.word, [type_ for _, type_ in self.words]

        def columns(records: Rows, flags: Flags) -> list[pa.Array]:
            bitmap = flags.bitmap(flag)
            return [read_word(records, word + i, type_, bitmap) for i, type_ in enumerate(types)]

        return Frozen(columns)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        present = restore_flag(records, self.place.flag, columns, self.name)
        for i, column in enumerate(columns):
            put_words(records, self.place.word + i, words(column), present)


def stored_lists(values: OrderedValues, state: str, names: Sequence[str]) -> list[pa.Field]:
    """Return the columns of a checkpoint for ordered values with columns of these names."""
    return values.stored([f"{state}/{name}" for name in (*names, "multiplicities")])


def frozen_lists(values: OrderedValues) -> Frozen:
    """Return the columns ``stored_lists`` of records frozen now."""
    store = values.store()
    return Frozen(lambda records, flags: store.columns(records), store.text_bytes)


def restore_flag(records: Rows, flag: int, columns: Sequence[pa.Array], name: str) -> Mask | None:
    """Set ``flag`` in the records that have a value: those whose ``columns`` are not null. None: all have one.

    Raises: CheckpointDamaged if one of the columns is null and others are not, or there is no flag for that.
    """
    if not any([column.null_count for column in columns]):
        records[:, 0] |= flag
        return None
    first, *others = [to_numbers(column.is_valid()) for column in columns]
    if not flag or any([not np.array_equal(first, other) for other in others]):
        nulls = [column.null_count for column in columns]
        raise CheckpointDamaged(f"{name}: {nulls} of {len(records)} stored values are null, not those of the same keys")
    records[:, 0] |= np.where(first, flag, 0)
    return first


def restore_bit(records: Rows, bit: int, column: pa.Array, name: str) -> Mask:
    """Set ``bit`` of word 0 in the records where ``column`` is true, and return where that is.

    Raises: CheckpointDamaged if it is null somewhere.
    """
    true: Mask = stored_words(column, name) != 0
    records[:, 0] |= np.where(true, bit, 0)
    return true


def put_words(records: Rows, word: int, values: Numbers, present: Mask | None) -> None:
    """Write one word of the ``records`` that are ``present``; None: all of them."""
    records[:, word] = values if present is None else np.where(present, values, records[:, word])


def stored_words(column: pa.Array, name: str) -> npt.NDArray[np.int64]:
    """Return the words of a column of a checkpoint. Raises: CheckpointDamaged if one is null."""
    if column.null_count:
        raise CheckpointDamaged(f"{name}: {column.null_count} of {len(column)} stored numbers are null")
    return words(column)


def read_word(
    records: Rows, word: int, type_: pa.DataType, bitmap: pa.Buffer | None = None, flip: int = 0, mask: int = 0
) -> pa.Array:
    """Return one word of all ``records`` as an array; ``flip`` and ``mask`` undo the order of an ``EXTREME``."""
    from operators.kernels.aggregate import read_words

    values = fresh_words(len(records))
    read_words(records, word, flip, mask, values)
    return from_words(values, type_, bitmap)


def seen(flag: int, records: Rows, always: int = 0) -> pa.Buffer | None:
    """Return the validity bitmap of the records that have ``flag``; None if all do."""
    if flag & ~always == 0:
        return None
    return pa.py_buffer(np.packbits(records[:, 0] & flag != 0, bitorder="little"))
