"""Numba is loaded by the first kernel, not by an import: what uses no kernel starts fast."""

from __future__ import annotations

import subprocess
import sys


def test_importing_keyed_state_and_aggregates_does_not_load_numba() -> None:
    modules = "dataflow.state.codec, dataflow.state.keyed, dataflow.state.partition, operators.aggregate"
    script = f"import sys, {modules}; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
