"""The operations of ``operators.kernels.aggregate``; a separate module, because importing that one loads numba."""

from __future__ import annotations

__all__ = ["COUNT", "EXTREME", "KEEP", "MARK", "SUM", "SUM_FLOAT", "SUM_UNSIGNED", "TOUCH", "WIDTH"]

TOUCH, MARK, COUNT, SUM, SUM_UNSIGNED, SUM_FLOAT, EXTREME = range(7)

KEEP = -1
"""Not an instruction of ``fold``: marks a word that an aggregate's own kernel changes."""

WIDTH = 8
"""The most instructions for one call of ``fold``."""
