"""Key columns of any type to slots, and back: the part of keyed state that depends on types.

Every key column becomes one 64-bit word per row: numbers and times are their own word, strings and decimals the code of
an interner. One column makes a one-word key, and null has a slot of its own. A single column of strings needs no other
index, because its codes are the slots. Several columns make a key of one word each and a last word that marks the null
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged, SchemaMismatch
from dataflow.state.arrays import canonical_words, fresh_words, from_words, is_bytes, is_word, validity
from dataflow.state.copy_on_write import CHUNK
from dataflow.state.dictionaries import wide_schema, wide_type
from dataflow.state.entries import EntrySlots
from dataflow.state.index import SlotIndex, Slots, WideSlotIndex
from dataflow.state.interning import InternedValues, Interner

__all__ = ["KeyIndex", "KnownKeys", "index_kernels"]

Words = npt.NDArray[np.int64]

_FIRST = 512
"""Initial capacity, in keys."""
_SHARED = 4
"""Maximum entries of a shared dictionary per row of the column."""


def index_kernels(key_schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the modules with the kernels that a ``KeyIndex`` of these columns calls."""
    interned = any([_interner(field, _FIRST) is not None for field in key_schema])
    return (
        "dataflow.state.kernels.index",
        *(["dataflow.state.kernels.interning"] if interned else []),
        *(["dataflow.state.kernels.entries"] if _may_be_encoded(key_schema) else []),
    )


class KeyIndex:
    """The keys of one subtask, numbered by slot: a new key gets a slot that was released, or else the next one.

    Nulls are keys, one per column; -0.0 is the key 0.0 and all NaNs are one key. ``key_schema`` has only the key
    columns. Dictionary keys may have indices of any width and are returned with int32 ones, as in ``schema``, because
    all keys together may overflow the index type of a batch. Raises ``SchemaMismatch`` for types that cannot be keys
    (nested ones) and for no columns.

    >>> index = KeyIndex(pa.schema({"user": pa.string(), "day": pa.int8()}))
    >>> batch = pa.record_batch({"user": ["ann", "bob", "ann"], "day": pa.array([1, None, 1], pa.int8())})
    >>> index.slots(batch.columns).tolist()
    [0, 1, 0]
    >>> index.keys(range(1, 2))[1].type, index.keys([1])[0].to_pylist()
    (DataType(int8), ['bob'])
    >>> index.remove(np.array([0], np.int32))
    >>> index.find(batch.columns).tolist(), index.live
    ([-1, 1, -1], 1)
    """

    def __init__(self, key_schema: pa.Schema, expected: int = 0) -> None:
        """``expected`` is the estimated number of keys; it sizes the memory and is no limit."""
        if not len(key_schema):
            raise SchemaMismatch("keyed state needs at least one key column")
        self.schema = wide_schema(key_schema)
        capacity = max(_FIRST, 1 << (expected - 1).bit_length())
        single = len(key_schema) == 1
        self._interners = [
            _interner(field, capacity if single else _FIRST, counted=not single) for field in self.schema
        ]
        self._texts = self._interners[0] if single else None
        self._one = SlotIndex(capacity) if single and self._texts is None else None
        self._wide = WideSlotIndex(len(self.schema) + 1, _FIRST if single else capacity)
        self._entries = EntrySlots() if _may_be_encoded(self.schema) else None
        self._dictionary: pa.Array | None = None
        self._null_slots: tuple[int, ...] = ()  # of a single column: those in use, and removed ones not yet released
        self._gone = 0  # slots removed, and not in use again
        self._fresh = np.empty(0, np.int32)

    def __len__(self) -> int:
        """Return the number of slots that were ever used and still exist; some may have been removed since."""
        return len(self._numbered)

    @property
    def _numbered(self) -> SlotIndex | WideSlotIndex | Interner:
        """What gives the slots their numbers."""
        if self._texts is not None:
            return self._texts
        return self._wide if self._one is None else self._one

    @property
    def live(self) -> int:
        """The number of keys."""
        return len(self) - self._gone

    @property
    def fresh(self) -> npt.NDArray[np.int32]:
        """The rows of the last call of ``slots`` whose key was new, in order; valid until the next call."""
        return self._fresh

    @property
    def text_bytes(self) -> int:
        """The bytes of all text among the keys."""
        return sum([interner.nbytes for interner in self._interners if interner is not None])

    def shrink(self) -> bool:
        """Give memory back if few of many slots are in use; return whether the highest ones do not exist any more.

        Call it while no caller keeps the slot of a removed key. Readers keep what they have.
        """
        before = len(self)
        fewer = self._numbered.shrink(self.live)
        if fewer:
            self._gone -= before - len(self)
            self._dictionary = None
        if len(self.schema) > 1:
            for interner in self._interners:
                if interner is not None:
                    interner.shrink_counted(lost_many=fewer)
        return fewer

    def reserve(self, keys: int) -> None:
        """Make room for ``keys`` keys at once, unless they are text. The index has had none."""
        if self._texts is None:
            (self._wide if self._one is None else self._one).reserve(keys)

    def slots(self, columns: Sequence[pa.Array]) -> Slots:
        """Return the slot of each row's key; new keys get slots. Columns are in the order of the schema.

        Columns of text, and of other byte strings, may come as dictionaries or plain, whatever their declared type.

        The result is scratch memory, valid until the next call.
        """
        self._check(columns)
        used = len(self)
        if self._entries is not None and pa.types.is_dictionary(columns[0].type):
            slots = self._entries.slots(columns[0], self._looked_up)
            self._fresh = self._entries.fresh
        elif len(columns) == 1:
            slots = self._slots_of_values(columns[0])
            self._fresh = self._numbered.fresh
        else:
            words = self._rows_of_words(columns, Interner.codes)
            slots = self._wide.lookup(words)
            self._fresh = self._wide.fresh
            if len(self._fresh):
                self._hold(words, self._fresh)
        if len(self._fresh):
            reused = len(self._fresh) - (len(self) - used)
            if reused:
                self._gone -= reused
                self._dictionary = None
            null = self._found_null
            if null is not None and null not in self._null_slots:
                self._null_slots = (*self._null_slots, null)
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Slots:
        """Return the slot of each row's key, or -1 if it has none."""
        self._check(columns)
        if len(columns) > 1:
            return self._wide.find(self._rows_of_words(columns, Interner.find))
        values = columns[0].dictionary_decode() if pa.types.is_dictionary(columns[0].type) else columns[0]
        if self._texts is not None:
            return self._texts.find(values).astype(np.int32)
        assert self._one is not None, "an index of several key columns"
        return self._one.find(self._words(0, values), _bits(values))

    def beside(self, slots: Slots, column: int) -> tuple[Slots, Slots]:
        """Return the neighbours of ``slots``: the slot whose key has one less in ``column``, and one more.

        -1: there is no such key. The index has other columns, too; this one holds integers, and no null in ``slots``.
        """
        assert len(self.schema) > 1, "an index of a single key column"
        assert pa.types.is_integer(self.schema.types[column]), f"column {column} is {self.schema.types[column]}"
        return self._wide.beside(slots, column)

    def remove(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, each once: they are not found any more.

        Their columns can still be read, until ``release`` lets other keys have the slots.
        """
        self._numbered.remove(slots)
        self._gone += len(slots)
        if self._entries is not None:
            self._entries.forget()

    def release(self, slots: Slots) -> None:
        """Let new keys have ``slots``, whose keys were removed and which no reader needs any more."""
        if len(self.schema) > 1:
            self._drop(slots)
        self._numbered.release(slots)
        if self._null_slots:
            self._null_slots = tuple([slot for slot in self._null_slots if slot not in slots])

    def _check(self, columns: Sequence[pa.Array]) -> None:
        expected = self.schema.types
        fitting = [isinstance(c, pa.Array) and _fits(c.type, t) for c, t in zip(columns, expected, strict=False)]
        if len(fitting) == len(columns) == len(expected) and all(fitting) and len({len(c) for c in columns}) == 1:
            return
        keys = dict(zip(self.schema.names, map(str, expected), strict=True))
        shown = [f"{type(c).__name__} of {len(c)} {getattr(c, 'type', 'values')}" for c in columns]
        raise SchemaMismatch(
            f"the keys of this state are {keys}, got {shown}: pass one pa.Array of the type of each, all of one length "
            "(combine_chunks() makes one of a ChunkedArray)"
        )

    def _rows_of_words(self, columns: Sequence[pa.Array], code: Callable[[Interner, pa.Array], Words]) -> Words:
        """Return the keys of several columns, a row for each word; ``code`` returns the codes of an interned column."""
        words = np.empty((len(columns) + 1, len(columns[0])), np.int64)
        words[-1] = 0
        for i, column in enumerate(columns):
            words[i] = self._words(i, column, code)
            bits, first = _bits(column)
            if len(bits):
                valid = np.unpackbits(bits, bitorder="little", count=first + len(column))[first:].astype(bool)
                words[i, ~valid] = 0
                words[-1] |= np.where(valid, 0, 1 << i)
        return words

    def _hold(self, words: Words, rows: npt.NDArray[np.int32]) -> None:
        for i, interner in enumerate(self._interners):
            if interner is not None:
                mine = rows[words[-1, rows] >> i & 1 == 0]
                interner.hold(words[i, mine])

    def _drop(self, slots: Slots) -> None:
        words = self._wide.words[slots]
        for i, interner in enumerate(self._interners):
            if interner is not None:
                interner.drop(words[words[:, -1] >> i & 1 == 0, i])

    def _looked_up(self, values: pa.Array) -> tuple[Slots, npt.NDArray[np.int32]]:
        return self._slots_of_values(values), self._numbered.fresh

    def _slots_of_values(self, values: pa.Array) -> Slots:
        """Return the slots of a single, plain key column."""
        if self._texts is not None:
            return self._texts.codes(values).astype(np.int32)
        assert self._one is not None, "an index of several key columns"
        return self._one.lookup(self._words(0, values), _bits(values))

    def _words(
        self, column: int, array: pa.Array, code: Callable[[Interner, pa.Array], Words] = Interner.codes
    ) -> Words:
        interner = self._interners[column]
        if interner is not None:
            return code(interner, array)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return canonical_words(array)

    def keys(self, slots: Sequence[int] | npt.NDArray[np.int32] | range) -> list[pa.Array]:
        """Return the key columns of ``slots``, in the exact types of ``schema``; the arrays own their memory.

        A dictionary column with many of the keys shares its dictionary with the columns returned before.
        """
        dictionary = self._shared(slots)
        if dictionary is None:
            return self.known().columns(slots)
        indices = to_array(np.array(slots, np.int32))  # a copy
        return [pa.DictionaryArray.from_arrays(indices, dictionary, ordered=self.schema.types[0].ordered)]

    def _shared(self, slots: Sequence[int] | npt.NDArray[np.int32] | range) -> pa.Array | None:
        """Return a dictionary in which each of ``slots`` is an index; it is rebuilt only for keys it does not have.

        A receiver processes a shared dictionary once. None if it would be much larger than the column, or if null is a
        key, because a dictionary cannot hold it.
        """
        if not pa.types.is_dictionary(self.schema.types[0]) or len(self.schema) > 1 or self._null_slots:
            return None
        if len(self) > _SHARED * len(slots):
            return None
        highest = int(np.max(slots, initial=-1))
        if self._dictionary is None or highest >= len(self._dictionary):
            self._dictionary = self.known().values_of(0)
        return self._dictionary

    def known(self) -> KnownKeys:
        """Return the keys of this moment, to be read on any thread while the index continues.

        Slots that are removed later must not be released while they are read.
        """
        values = [None if interner is None else interner.values() for interner in self._interners]
        index = self._wide if self._one is None else self._one
        words = index.words if self._texts is None else None
        return KnownKeys(self.schema, len(self), words, self._null_slots, values)

    @property
    def _found_null(self) -> int | None:
        """The slot of the null key of a single column, or None."""
        if self._texts is not None:
            return self._texts.null_code
        return None if self._one is None else self._one.null_slot

    def snapshot(self) -> pa.RecordBatchReader:
        """Return a reader of all keys of this moment in the order of their slots, for use on any thread."""
        return pa.RecordBatchReader.from_batches(self.schema, self.known().batches())

    def restore(self, table: pa.Table) -> None:
        """Restore the keys of a snapshot: row i becomes slot i. Only for an index without keys.

        Raises: CheckpointDamaged if a key occurs twice, or has another type.
        """
        assert not len(self), f"restore is for an empty index; this one has {len(self)} keys"
        types = [wide_type(type_) for type_ in table.schema.types]
        if types != self.schema.types:
            raise CheckpointDamaged(f"the checkpoint has keys of types {types}, expected {self.schema.types}")
        for batch in table.to_batches():
            self.slots(batch.columns)
        if len(self) != table.num_rows:
            raise CheckpointDamaged(
                f"the checkpoint has {table.num_rows} keys, but only {len(self)} distinct ones: expected each once"
            )


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """The keys up to a moment, which any thread may read while the index continues.

    Needs no lock and no copy, because a slot keeps its key while it is read: growth allocates another array.
    ``words`` has one row per slot, whose last word marks the null columns; with one column, ``null_slots`` does. If it
    is None, each slot is itself the only word of its key.
    """

    schema: pa.Schema
    count: int
    words: Words | None
    null_slots: Sequence[int]
    values: Sequence[InternedValues | None]

    def columns(self, slots: Sequence[int] | npt.NDArray[np.int32] | range) -> list[pa.Array]:
        """Return the key columns of ``slots``; the arrays own their memory."""
        chosen = self._chosen(slots)
        if len(self.schema) > 1:
            absent = [_is_null(chosen, i) for i in range(len(self.schema))]
        elif not self.null_slots:
            absent = [np.zeros(len(chosen), bool)]
        else:
            absent = [np.isin(_numbers(slots), self.null_slots)]
        return [self._array(i, _copy(chosen[:, i]), absent[i]) for i in range(len(self.schema))]

    def text_bytes(self, slots: Sequence[int] | npt.NDArray[np.int32] | range) -> int:
        """Return the bytes of the text in the keys of ``slots``."""
        chosen, total = self._chosen(slots), 0
        for column, interned in enumerate(self.values):
            if interned is not None:
                codes = chosen[:, column] if len(self.schema) == 1 else chosen[~_is_null(chosen, column), column]
                total += interned.text_bytes(codes)
        return total

    def _chosen(self, slots: Sequence[int] | npt.NDArray[np.int32] | range) -> Words:
        """Return the words of ``slots``, one row a slot."""
        if self.words is None:
            return _numbers(slots)[:, None]
        if isinstance(slots, range):
            return self.words[slots.start : slots.stop : slots.step]
        return self.words.take(slots, axis=0)

    def _array(self, column: int, words: Words, absent: npt.NDArray[np.bool_]) -> pa.Array:
        declared, interned = self.schema.types[column], self.values[column]
        if pa.types.is_dictionary(declared) and interned is not None:
            return _encoded(words, absent, interned, declared)
        bitmap = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        plain = self._plain(column, words, bitmap)
        return plain.dictionary_encode().cast(declared) if pa.types.is_dictionary(declared) else plain

    def _plain(self, column: int, words: Words, bitmap: pa.Buffer | None) -> pa.Array:
        declared, values = self.schema.types[column], self.values[column]
        type_ = declared.value_type if pa.types.is_dictionary(declared) else declared
        return from_words(words, type_, bitmap) if values is None else values.of(words, type_, bitmap)

    def values_of(self, column: int) -> pa.Array:
        """Return a key column of all slots, without nulls and not dictionary-encoded."""
        return self._plain(column, _copy(self._chosen(range(self.count))[:, column]), None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all keys in the order of their slots, at most ``CHUNK`` rows at a time."""
        for start in range(0, self.count, CHUNK):
            slots = range(start, min(start + CHUNK, self.count))
            yield pa.RecordBatch.from_arrays(self.columns(slots), schema=self.schema)


def _numbers(slots: Sequence[int] | npt.NDArray[np.int32] | range) -> npt.NDArray[np.int64]:
    """Return slots as an array; one made from a range would be built from Python's integers, ten times as slowly."""
    if isinstance(slots, range):
        return np.arange(slots.start, slots.stop, slots.step)
    return np.asarray(slots, np.int64)


def _is_null(keys: Words, column: int) -> npt.NDArray[np.bool_]:
    """Return which keys of several columns are null in ``column``."""
    null: npt.NDArray[np.bool_] = (keys[:, -1] >> column) & 1 == 1
    return null


def _may_be_encoded(schema: pa.Schema) -> bool:
    """Return whether rows of a single key column may be dictionaries."""
    return len(schema) == 1 and (pa.types.is_dictionary(schema.types[0]) or is_bytes(schema.types[0]))


def _fits(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a column of type ``found`` has the values of a key of type ``declared``."""
    if wide_type(found) == declared:
        return True
    if pa.types.is_dictionary(declared):
        return is_bytes(found) and found == declared.value_type
    return pa.types.is_dictionary(found) and is_bytes(declared) and found.value_type == declared


def _interner(field: pa.Field, capacity: int, *, counted: bool = False) -> Interner | None:
    type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if is_word(type_):
        return None
    if is_bytes(type_):
        return Interner(capacity, counted=counted)
    raise SchemaMismatch(
        f"the column {field.name!r} of type {field.type} cannot be a key: "
        f"expected a number, boolean, text, binary, time or decimal column"
    )


def _copy(words: Words) -> Words:
    fresh = fresh_words(len(words))
    fresh[:] = words
    return fresh


def _bits(array: pa.Array) -> tuple[npt.NDArray[np.uint8], int]:
    """Return the validity of the rows; a dictionary array may have nulls in its dictionary as well."""
    if pa.types.is_dictionary(array.type):
        if array.dictionary.null_count:
            valid = np.asarray(to_numbers(array.is_valid()))
            valid &= np.asarray(to_numbers(array.dictionary_decode().is_valid()))
            return np.packbits(valid, bitorder="little"), 0
        return validity(array.indices)
    return validity(array)


def _encoded(words: Words, absent: npt.NDArray[np.bool_], interned: InternedValues, declared: pa.DataType) -> pa.Array:
    """Return a dictionary column of interned values, with each value in memory once."""
    codes, numbers = np.unique(words[~absent], return_inverse=True)
    indices = np.zeros(len(words), np.int32)
    indices[~absent] = numbers
    dictionary = interned.of(codes, declared.value_type, None)
    column = pa.DictionaryArray.from_arrays(to_array(indices, mask=absent), dictionary, ordered=declared.ordered)
    return column.cast(declared)
