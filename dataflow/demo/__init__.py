"""The demonstration: real flights through a real job that is really killed, once per checkpoint mode.

``flights`` prepares the input, ``job`` is the pipeline, ``dataflow.compare`` runs, kills and restores it, ``oracle``
computes the right result without the engine, ``verdict`` compares the job's result with it, ``run_demo`` joins these
steps, and ``report`` presents the results.
"""

from __future__ import annotations

from dataflow.demo.report import DemoReport
from dataflow.demo.run_demo import run_modes

__all__ = ["DemoReport", "run_modes"]
