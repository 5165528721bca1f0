"""From keys to key groups to subtasks: a hash that is the same in every process, on every machine, in every release.

A key's *group* depends only on the key and the job's ``max_key_groups``. The subtask that owns a group depends on the
parallelism, in contiguous ranges as in Flink (``KeyGroupRangeAssignment``). This is why checkpoints can be rescaled, so
the functions of this file are part of the checkpoint format: never change their results.

>>> [key_group_range(subtask, 3, 128) for subtask in range(3)]
[range(0, 43), range(43, 86), range(86, 128)]
>>> subtask_of(85, 3, 128)
1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import SchemaMismatch
from dataflow.state.arrays import byte_ranges, canonical_words, fresh, is_bytes, is_word, plain, validity, words

__all__ = ["hash_rows", "key_group_range", "key_groups", "subtask_of"]

Hashes = npt.NDArray[np.uint64]


def hash_rows(columns: Sequence[pa.Array]) -> Hashes:
    """Return one hash per row over all ``columns``, in their order.

    Equal values have equal hashes whatever array holds them: sliced or not, plain or dictionary encoded, int8 or
    int64, string or large_string. A null has a hash of its own, -0.0 is 0.0, and all NaNs are one value.
    Raises ``SchemaMismatch`` for nested types, and ``ValueError`` without columns.

    >>> one = hash_rows([pa.array(["a", None, "b"])])
    >>> two = hash_rows([pa.array(["b", "a"]).dictionary_encode()])
    >>> bool(one[0] == two[1]), bool(one[2] == two[0])
    (True, True)
    """
    from dataflow.state.kernels.hashing import combine

    if not columns:
        raise ValueError("hash_rows needs at least one column")
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        combine(hashes, _hash_column(column))
    return hashes


def _hash_column(column: pa.Array) -> Hashes:
    from dataflow.state.kernels.hashing import gather_hashes, hash_strings, hash_words

    column = plain(column)
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) > len(column):
            return _hash_column(column.dictionary_decode())
        hashes = fresh(np.uint64, len(column))
        gather_hashes(_hash_column(column.dictionary), words(column.indices), *validity(column.indices), hashes)
        return hashes
    hashes = fresh(np.uint64, len(column))
    if is_word(column.type):
        hash_words(canonical_words(column), *validity(column), hashes)
    elif is_bytes(column.type):
        hash_strings(*byte_ranges(column), *validity(column), hashes)
    else:
        raise SchemaMismatch(f"a key cannot have the type {column.type}: use a number, text, time or decimal column")
    return hashes


def key_groups(hashes: Hashes, max_key_groups: int) -> npt.NDArray[np.int32]:
    """Return the key group of each hash, below ``max_key_groups``: its upper half, scaled (no division)."""
    return (((hashes >> np.uint64(32)) * np.uint64(max_key_groups)) >> np.uint64(32)).astype(np.int32)


def key_group_range(subtask: int, parallelism: int, max_key_groups: int) -> range:
    """Return the key groups of ``subtask``; the ranges of all subtasks are contiguous and cover every group once.

    Raises ``ValueError`` if there are fewer key groups than subtasks, or ``subtask`` is out of range.
    """
    if not 0 <= subtask < parallelism <= max_key_groups:
        raise ValueError(
            f"expected 0 <= subtask < parallelism <= max_key_groups, got subtask {subtask}, parallelism {parallelism}, "
            f"max_key_groups {max_key_groups}"
        )
    return range(-(-subtask * max_key_groups // parallelism), -(-(subtask + 1) * max_key_groups // parallelism))


def subtask_of(key_group: int, parallelism: int, max_key_groups: int) -> int:
    """Return the subtask that owns ``key_group``; the inverse of ``key_group_range``."""
    if not 0 <= key_group < max_key_groups:
        raise ValueError(f"key group {key_group} is not below {max_key_groups}")
    return key_group * parallelism // max_key_groups
