"""Numba is loaded by the first kernel, not by an import: what uses no kernel starts fast."""

from __future__ import annotations

import subprocess
import sys


def test_importing_keyed_state_and_aggregates_does_not_load_numba() -> None:
    modules = "dataflow.state.codec, dataflow.state.keyed, dataflow.state.partition, operators.aggregation.aggregate"
    script = f"import sys, {modules}; print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
