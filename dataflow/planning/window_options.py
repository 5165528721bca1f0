"""The options of windows: lateness, triggers and panes, and what windows emit."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.clock import Duration, microseconds
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Panes, Trigger
from dataflow.contracts.untimed import CountWindow, GlobalWindow, Untimed
from dataflow.contracts.windows import Window
from dataflow.errors import ConfigurationError, GraphError
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.checks import choose_window_emit

__all__ = ["WindowOptions", "window_options"]


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The options of ``.window(...)``. ``lateness`` in microseconds."""

    lateness: int
    early: Trigger | None
    late: Trigger | None
    panes: Panes

    @property
    def has_triggers(self) -> bool:
        """Whether results come by triggers, not only at the end of windows and with each batch of late rows."""
        return self.early is not None or self.late is not None or self.panes is Panes.DISCARDING

    def emit(self, emit: str | Emit | None) -> tuple[Emit, str]:
        """Return what windows emit, and the reason if updates are the default.

        Raises: ConfigurationError if ``emit`` is unknown; GraphError if it does not go with the triggers.
        """
        if self.panes is Panes.DISCARDING:
            if emit is not None:
                raise GraphError(
                    f"agg(emit={emit!r}) cannot be used with panes='discarding', whose results are rows that add up; "
                    "leave emit= out, or use panes='accumulating'"
                )
            return Emit.UPDATES, ""
        if self.early is None:
            chosen, because = choose_window_emit(emit, self.lateness)
        else:
            chosen, because = choose_window_emit(emit, 1)  # there are results again, as with lateness
            because = because and "its windows have early="
        if chosen is Emit.FINAL and (self.early is not None or self.late is not None):
            given = "early" if self.early is not None else "late"
            raise GraphError(
                f"agg(emit='final') shows a window once, so {given}={getattr(self, given)} has no effect; leave it "
                "out, or use emit='updates' or 'changes'"
            )
        return chosen, because


def window_options(
    window: Window | Untimed,
    lateness: Duration,
    early: Trigger | None,
    late: Trigger | None,
    panes: str | Panes,
    *,
    timed: bool,
) -> WindowOptions:
    """Return the options of ``.window(window, ...)``; ``timed``: whether the rows have event time.

    Raises: ConfigurationError for an unknown value of ``panes``, or a ``lateness`` that is no duration; GraphError for
        what is no trigger, ``late`` without lateness, and options that ``window`` does not have.
    """
    names = [choice.value for choice in Panes]
    if not isinstance(panes, Panes) and panes not in names:
        raise ConfigurationError(f"window(panes=) must be one of {names}, got {panes!r}")
    for name, trigger in (("early", early), ("late", late)):
        if trigger is not None and not isinstance(trigger, AfterRows | AfterTime | AtTimes):
            raise GraphError(
                f"window({name}=): expected op.after_rows(n), op.after_time('1s') or op.at_times('1s'), got "
                f"{trigger!r} ({type(trigger).__name__})"
            )
    options = WindowOptions(microseconds(lateness, "window(lateness=)"), early, late, Panes(panes))
    if isinstance(window, GlobalWindow | CountWindow):
        _check_untimed(window, options, timed=timed)
    elif late is not None and not options.lateness:
        raise GraphError(
            f"window(late={late}) needs lateness=, because without it no window takes late rows; add lateness='1h', or "
            "leave late= out"
        )
    return options


def _check_untimed(window: Untimed, options: WindowOptions, *, timed: bool) -> None:
    if options.lateness or options.late is not None:
        given = "lateness=" if options.lateness else "late="
        raise GraphError(f"window({given}) cannot be used with {window}, in which no row is late; leave it out")
    if isinstance(window, CountWindow) and options.has_triggers:
        given = "early=" if options.early is not None else "panes="
        raise GraphError(
            f"window({given}) cannot be used with {window}, whose results come when their rows are there; leave it "
            "out, or use op.global_window()"
        )
    if isinstance(options.early, AtTimes) and not timed:
        raise GraphError(
            f"window(early={options.early}) needs event time, and the stream has none; declare its column with "
            '.with_watermark("ts"), or use op.after_time'
        )
