"""What the machine can do and Python cannot say: products that tell of overflow, and division that truncates.

Generated loops are made of these. The caller sees to it that no divisor is zero, and that the least int64 is never
divided by -1: both are undefined here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from dataflow.state.arrays import CANONICAL_NAN
from dataflow.state.kernels.words import RU8

__all__ = ["bit", "bits_of", "multiply", "multiply_overflows", "multiply_unsigned", "multiply_unsigned_overflows"]
__all__ += ["quotient", "quotient_unsigned", "remainder", "remainder_unsigned", "word_of"]


def _product(builder: Any, name: str, arguments: Any) -> Any:
    word = ir.IntType(64)
    kind = ir.FunctionType(ir.LiteralStructType([word, ir.IntType(1)]), [word, word])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@intrinsic
def multiply(typing_context: Any, left: Any, right: Any) -> Any:
    """The product of two int64, modulo 2**64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_value(_product(builder, "llvm.smul.with.overflow.i64", arguments), 0)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def multiply_overflows(typing_context: Any, left: Any, right: Any) -> Any:
    """Whether the product of two int64 is none; costs nothing beside ``multiply`` of the same two."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_value(_product(builder, "llvm.smul.with.overflow.i64", arguments), 1)

    return types.boolean(types.int64, types.int64), generate


@intrinsic
def multiply_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """The product of two uint64, modulo 2**64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_value(_product(builder, "llvm.umul.with.overflow.i64", arguments), 0)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def multiply_unsigned_overflows(typing_context: Any, left: Any, right: Any) -> Any:
    """Whether the product of two uint64 is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_value(_product(builder, "llvm.umul.with.overflow.i64", arguments), 1)

    return types.boolean(types.uint64, types.uint64), generate


@intrinsic
def quotient(typing_context: Any, left: Any, right: Any) -> Any:
    """The quotient of two int64, truncated toward zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sdiv(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def remainder(typing_context: Any, left: Any, right: Any) -> Any:
    """What ``quotient`` leaves, with the sign of ``left``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.srem(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def quotient_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """The quotient of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.udiv(*arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def remainder_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """The remainder of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.urem(*arguments)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def bits_of(typing_context: Any, number: Any) -> Any:
    """The 64 bits of a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@njit(types.boolean(RU8, types.uint64), nogil=True, cache=True)
def bit(bits: Any, position: Any) -> Any:
    """The bit at ``position`` of an Arrow bitmap."""
    return (bits[position >> types.uint64(3)] >> (position & types.uint64(7))) & types.uint64(1) != types.uint64(0)


@njit(types.uint64(types.float64), nogil=True, cache=True)
def word_of(number: Any) -> Any:
    """The bits of a float64 as a key: one zero, one NaN."""
    return bits_of(number + 0.0) if number == number else types.uint64(CANONICAL_NAN)
