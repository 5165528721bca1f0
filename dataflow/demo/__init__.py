"""The demonstration: real flights through a real job that is really killed, once per checkpoint mode.

``flights`` prepares the input, ``job`` is the pipeline, ``killing`` ends its process in the middle of a checkpoint,
``oracle`` knows the right answer without the engine, ``showing`` joins them and ``report`` prints what came out.
"""

from __future__ import annotations

from dataflow.demo.report import DemoReport, ModeReport
from dataflow.demo.showing import show

__all__ = ["DemoReport", "ModeReport", "show"]
