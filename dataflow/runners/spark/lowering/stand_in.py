"""A stand-in for pyspark and its columns, with which an operator is lowered to find out whether it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["StandIn"]


class StandIn:
    """Each attribute, call and operation gives it again.

    >>> anything = StandIn()
    >>> (anything.col("x") + 1).cast("int") is anything
    True
    """

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> StandIn:
        return self

    def transform(self, column: Any, use: Callable[[Any], Any]) -> StandIn:
        """Call the function that Spark would call with each element of an array."""
        use(self)
        return self

    def __bool__(self) -> NoReturn:
        raise TypeError("a column has no truth value before it is computed")

    def _again(self, *operands: Any) -> StandIn:
        return self

    __add__ = __sub__ = __mul__ = __truediv__ = __mod__ = __neg__ = __invert__ = _again
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rmod__ = _again
    __and__ = __or__ = __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _again
    __eq__ = __ne__ = _again  # type: ignore[assignment]
    __hash__ = object.__hash__
