"""Old import path of ``dataflow.runtime.task.crash_points``, kept because the guides named it; it only re-exports."""

from dataflow.runtime.task.crash_points import Point, Probe, no_probe

__all__ = ["Point", "Probe", "no_probe"]
