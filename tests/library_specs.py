"""The specs of the library, for tests that must know of each new one."""

from __future__ import annotations

import sys

from dataflow.contracts.spec import Spec
from dataflow.planning.operator_table import registered_specs

__all__ = ["library_specs"]


def library_specs() -> set[type[Spec]]:
    """Return the specs that the library defines. Doctests of its modules, in this process, register others."""
    return {
        spec
        for spec in registered_specs()
        if spec.__module__.startswith("dataflow.")
        and getattr(sys.modules[spec.__module__], spec.__name__, None) is spec
    }
