"""Old path of ``dataflow.runtime.task.crash_points``."""

from dataflow.runtime.task.crash_points import Point, Probe, no_probe

__all__ = ["Point", "Probe", "no_probe"]
