"""Shared parts of the kernels: array types, unaligned loads, validity bits, and the one 64-bit hash.

The hash of a word is the finaliser of splitmix64 (Steele, Lea, Flood 2014: "Fast splittable pseudorandom number
generators"), moved by the golden ratio so that zero does not hash to zero. The hash of bytes folds their little-endian
8-byte words, the last one padded with zeros, into the hash of their length.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataflow.kernel_cache.decorator import kernel

__all__ = ["GOLDEN", "NULL_HASH", "RI32", "RI64", "RU8", "RU64", "WI32", "WI64", "WU64", "hash_bytes", "hash_word"]
__all__ += ["READ_RECORDS", "RECORDS", "load", "prefetch", "same_bytes", "valid"]

RU8 = types.Array(types.uint8, 1, "C", readonly=True)
RI32 = types.Array(types.int32, 1, "C", readonly=True)
RI64 = types.Array(types.int64, 1, "C", readonly=True)
RU64 = types.Array(types.uint64, 1, "C", readonly=True)
WI32 = types.int32[::1]
WI64 = types.int64[::1]
WU64 = types.uint64[::1]
RECORDS = types.int64[:, ::1]
READ_RECORDS = types.Array(types.int64, 2, "C", readonly=True)

GOLDEN = 0x9E3779B97F4A7C15
NULL_HASH = 0x6E756C6C6B657921


@intrinsic
def load(typing_context: Any, data: Any, at: Any) -> Any:
    """Return the 8 bytes of ``data`` from byte ``at`` on as a little-endian uint64. Unchecked: stay in the array."""
    signature = types.uint64(data, at)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return signature, generate


@intrinsic
def prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Prefetch the cache line of the word ``at`` of a contiguous array of any shape; never faults."""
    signature = types.void(array, at)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.bitcast(builder.gep(memory.data, [arguments[1]]), byte)
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, generate


@kernel(types.boolean(RU8, types.int64))
def valid(bits: Any, position: Any) -> Any:
    """Return whether the row at bit ``position`` of an Arrow validity bitmap has a value."""
    return (bits[position >> 3] >> (position & 7)) & 1 == 1


@kernel(types.uint64(types.uint64))
def hash_word(word: Any) -> Any:
    """Return the hash of a 64-bit word."""
    word += types.uint64(GOLDEN)
    word = (word ^ (word >> types.uint64(30))) * types.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> types.uint64(27))) * types.uint64(0x94D049BB133111EB)
    return word ^ (word >> types.uint64(31))


@kernel(types.uint64(RU8, types.int64, types.int64))
def hash_bytes(data: Any, start: Any, stop: Any) -> Any:
    """Return the hash of ``data[start:stop]``."""
    length = stop - start
    state = types.uint64(length) * types.uint64(GOLDEN)
    at = start
    while at + 8 <= stop:
        state = (state ^ load(data, at)) * types.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> types.uint64(29)
        at += 8
    rest = stop - at
    if rest > 0:
        spare = types.uint64(64 - 8 * rest)
        if at + 8 <= data.size:
            last = (load(data, at) << spare) >> spare
        elif stop >= 8:
            last = load(data, stop - 8) >> spare
        else:
            last = types.uint64(0)
            for i in range(rest):
                last |= types.uint64(data[at + i]) << types.uint64(8 * i)
        state = (state ^ last) * types.uint64(0xBF58476D1CE4E5B9)
    return hash_word(state)


@kernel(types.boolean(RU8, types.int64, RU8, types.int64, types.int64))
def same_bytes(left: Any, left_at: Any, right: Any, right_at: Any, length: Any) -> Any:
    """Return whether ``length`` bytes from ``left_at`` and ``right_at`` on are equal."""
    done = 0
    while done + 8 <= length:
        if load(left, left_at + done) != load(right, right_at + done):
            return False
        done += 8
    rest = length - done
    if rest > 0 and length >= 8:  # the last 8 bytes, some of them for the second time
        return load(left, left_at + length - 8) == load(right, right_at + length - 8)
    if rest > 0 and left_at + 8 <= left.size and right_at + 8 <= right.size:
        return (load(left, left_at) ^ load(right, right_at)) << types.uint64(64 - 8 * rest) == 0
    while done < length:
        if left[left_at + done] != right[right_at + done]:
            return False
        done += 1
    return True
