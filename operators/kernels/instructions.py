"""The operations of ``operators.kernels.aggregate``; a separate module, because importing that one loads numba."""

from __future__ import annotations

__all__ = ["ARGUMENTS", "COUNT", "EXTREME", "KEEP", "PASS_WORDS", "SUM", "SUM_FLOAT", "SUM_UNSIGNED"]

COUNT, SUM, SUM_UNSIGNED, SUM_FLOAT, EXTREME = range(1, 6)
"""The operations that change a word of a record; 0 stands for none."""

KEEP = -1
"""Not an operation of ``fold``: marks a word that an aggregate's own kernel changes."""

ARGUMENTS = 8
"""The most passes for one call of ``fold``; each reads one argument."""

PASS_WORDS = 12
"""The numbers that describe a pass to ``fold``."""
