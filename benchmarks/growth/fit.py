"""Exponents: the slope of a least-squares line through the logarithms of sizes and times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.student import quantile

__all__ = ["Exponent", "exponent"]


@dataclass(frozen=True)
class Exponent:
    """``value`` with the half-width of its 95 % confidence interval, and the number of ``sizes`` that were used."""

    value: float
    half_width: float | None
    sizes: int


def exponent(sizes: Sequence[float], times: Sequence[float]) -> Exponent | None:
    """Fit ``times`` = factor x ``sizes`` ** exponent. None: there are fewer than two sizes.

    Args:
        sizes: one for each time; the same size may come several times.
        times: above zero.

    >>> exponent([1, 10, 100], [2.0, 20.0, 200.0]).value
    1.0
    """
    if len(set(sizes)) < 2:
        return None
    x, y = np.log10(np.asarray(sizes, float)), np.log10(np.asarray(times, float))
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    half_width = None
    if len(x) > 2:
        rest = y - y.mean() - slope * (x - x.mean())
        half_width = quantile(len(x) - 2) * math.sqrt(float((rest**2).sum()) / (len(x) - 2) / spread)
    return Exponent(round(slope, 12), half_width, len(set(sizes)))
