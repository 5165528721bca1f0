"""The operations that ``operators.kernels.aggregate`` knows. Apart from it, because to import that one loads numba."""

from __future__ import annotations

__all__ = ["COUNT", "EXTREME", "KEEP", "MARK", "SUM", "SUM_FLOAT", "SUM_UNSIGNED", "TOUCH", "WIDTH"]

TOUCH, MARK, COUNT, SUM, SUM_UNSIGNED, SUM_FLOAT, EXTREME = range(7)

KEEP = -1
"""No instruction of ``fold``: of a word that an aggregate's own kernel changes."""

WIDTH = 8
"""How many instructions one call of ``fold`` takes."""
