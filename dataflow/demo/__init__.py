"""The demonstration: real flights through a real job that is really killed, once per checkpoint mode.

``flights`` prepares the input, ``job`` is the pipeline, ``compare`` runs, kills and restores it, ``oracle`` knows the
right answer without the engine, ``verdict`` compares with it, ``showing`` joins them and ``report`` says what came out.
"""

from __future__ import annotations

from dataflow.demo.report import DemoReport
from dataflow.demo.showing import show

__all__ = ["DemoReport", "show"]
