"""Means of a few repeats, with the half-width of their 95 % confidence interval (Student 1908)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

__all__ = ["Estimate", "estimate", "quantile"]

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom."""
_NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A mean of ``repeats`` values; ``half_width`` is None if there is only one value."""

    mean: float
    half_width: float | None
    repeats: int

    def text(self, digits: int = 1) -> str:
        """Return "mean ± half-width", or the mean alone.

        >>> Estimate(12.34, 0.56, 3).text(), Estimate(1_200.0, None, 1).text(0)
        ('12.3 ± 0.6', '1,200')
        """
        spread = "" if self.half_width is None else f" ± {self.half_width:,.{digits}f}"
        return f"{self.mean:,.{digits}f}{spread}"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of ``values`` with its half-width.

    >>> estimate([1.0, 2.0, 3.0]).text(2)
    '2.00 ± 2.48'
    """
    if len(values) < 2:
        return Estimate(mean(values), None, len(values))
    return Estimate(mean(values), quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values))


def quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t; above 10 degrees of freedom by the Cornish-Fisher expansion.

    >>> quantile(2), round(quantile(11), 3), round(quantile(30), 3)
    (4.303, 2.201, 2.042)
    """
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
