"""Machine instructions that Python lacks: multiplication that detects overflow, and division that truncates.

Generated loops use them. The caller must ensure that no divisor is zero, and that the least int64 is never divided by
-1: both are undefined here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.arrays import CANONICAL_NAN
from dataflow.state.kernels.words import RU8

__all__ = ["bit", "bits_of", "multiply", "multiply_overflows", "multiply_unsigned", "multiply_unsigned_overflows"]
__all__ += ["quotient", "quotient_unsigned", "remainder", "remainder_unsigned", "word_of"]


_Generate = Callable[[Any, Any, Any, Any], Any]
_SIGNED, _UNSIGNED = "llvm.smul.with.overflow.i64", "llvm.umul.with.overflow.i64"
_PRODUCT, _OVERFLOW = 0, 1


def _multiplied(name: str, part: int) -> _Generate:
    """Return the code of one part of a checked product: the number or the overflow; both cost one multiplication."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.LiteralStructType([word, ir.IntType(1)]), [word, word])
        product = builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
        return builder.extract_value(product, part)

    return generate


def _instruction(name: str) -> _Generate:
    """Return the code of one machine instruction on the two operands."""
    return lambda context, builder, signature, arguments: getattr(builder, name)(*arguments)


@intrinsic
def multiply(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the product of two int64, modulo 2**64."""
    return types.int64(types.int64, types.int64), _multiplied(_SIGNED, _PRODUCT)


@intrinsic
def multiply_overflows(typing_context: Any, left: Any, right: Any) -> Any:
    """Return whether the product of two int64 overflows; free next to ``multiply`` of the same operands."""
    return types.boolean(types.int64, types.int64), _multiplied(_SIGNED, _OVERFLOW)


@intrinsic
def multiply_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the product of two uint64, modulo 2**64."""
    return types.uint64(types.uint64, types.uint64), _multiplied(_UNSIGNED, _PRODUCT)


@intrinsic
def multiply_unsigned_overflows(typing_context: Any, left: Any, right: Any) -> Any:
    """Return whether the product of two uint64 overflows."""
    return types.boolean(types.uint64, types.uint64), _multiplied(_UNSIGNED, _OVERFLOW)


@intrinsic
def quotient(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the quotient of two int64, truncated toward zero."""
    return types.int64(types.int64, types.int64), _instruction("sdiv")


@intrinsic
def remainder(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the remainder of ``quotient``, with the sign of ``left``."""
    return types.int64(types.int64, types.int64), _instruction("srem")


@intrinsic
def quotient_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the quotient of two uint64."""
    return types.uint64(types.uint64, types.uint64), _instruction("udiv")


@intrinsic
def remainder_unsigned(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the remainder of two uint64."""
    return types.uint64(types.uint64, types.uint64), _instruction("urem")


@intrinsic
def bits_of(typing_context: Any, number: Any) -> Any:
    """Return the 64 bits of a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@kernel(types.boolean(RU8, types.uint64))
def bit(bits: Any, position: Any) -> Any:
    """Return the bit at ``position`` of an Arrow bitmap."""
    return (bits[position >> types.uint64(3)] >> (position & types.uint64(7))) & types.uint64(1) != types.uint64(0)


@kernel(types.uint64(types.float64))
def word_of(number: Any) -> Any:
    """Return the bits of a float64 as a key: both zeros are equal, and all NaNs."""
    return bits_of(number + 0.0) if number == number else types.uint64(CANONICAL_NAN)
