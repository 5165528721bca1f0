"""Kernels that hash the rows of one column, and combine columns."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import GOLDEN, NULL_HASH, RI64, RU8, RU64, WU64, hash_bytes, hash_word, valid

__all__ = ["combine", "gather_hashes", "hash_strings", "hash_words"]


@kernel(types.void(RI64, RU8, types.int64, WU64))
def hash_words(words: Any, bits: Any, offset: Any, out: Any) -> None:
    """Write the hash of each word to ``out``; null rows get ``NULL_HASH``."""
    if bits.size == 0:
        for i in range(words.size):
            out[i] = hash_word(types.uint64(words[i]))
        return
    for i in range(words.size):
        out[i] = hash_word(types.uint64(words[i])) if valid(bits, offset + i) else types.uint64(NULL_HASH)


@kernel(types.void(RU8, RI64, RU8, types.int64, WU64))
def hash_strings(data: Any, offsets: Any, bits: Any, offset: Any, out: Any) -> None:
    """Write the hash of the bytes of each row to ``out``; null rows get ``NULL_HASH``."""
    for i in range(offsets.size - 1):
        if bits.size == 0 or valid(bits, offset + i):
            out[i] = hash_bytes(data, offsets[i], offsets[i + 1])
        else:
            out[i] = types.uint64(NULL_HASH)


@kernel(types.void(RU64, RI64, RU8, types.int64, WU64))
def gather_hashes(hashes: Any, indices: Any, bits: Any, offset: Any, out: Any) -> None:
    """Write the hash of each row of a dictionary array to ``out``, given the hashes of its dictionary."""
    for i in range(indices.size):
        if bits.size == 0 or valid(bits, offset + i):
            out[i] = hashes[indices[i]]
        else:
            out[i] = types.uint64(NULL_HASH)


@kernel(types.void(WU64, RU64))
def combine(hashes: Any, more: Any) -> None:
    """Fold the hashes of the next column into the combined ones so far; the order of columns matters."""
    for i in range(hashes.size):
        hashes[i] = hash_word(hashes[i] * types.uint64(GOLDEN) + more[i])
