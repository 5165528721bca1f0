"""The closing paragraph of a comparison, derived from its figures: what each mode promised, kept and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dataflow.clock import duration_text
from dataflow.compare.mode_report import Cost, ModeReport, Promise
from dataflow.contracts.checkpointing import Mode

__all__ = ["conclude"]


def conclude(modes: Sequence[ModeReport], evidence: Mapping[Mode, str] | None = None) -> list[str]:
    """Return the conclusions: a summary, then one sentence or two per mode, then a comparison of costs.

    Args:
        modes: the results of the modes.
        evidence: by mode, a sentence without a full stop on its output, in the place of ``ModeReport.result``.
    """
    tested = [mode for mode in modes if mode.promise is not Promise.NOT_TESTED]
    held = [mode for mode in tested if mode.promise is Promise.HELD]
    if tested:
        untested = len(modes) - len(tested)
        summary = f"{len(held)} of {len(tested)} tested modes kept their promise after the kill"
        summary += f", and {untested} could not be tested" if untested else ""
    else:
        summary = "No promise was tested"
    return [
        f"{summary}.",
        *(_of_mode(mode, (evidence or {}).get(mode.mode)) for mode in modes),
        *_costs_compared(modes),
    ]


def _of_mode(mode: ModeReport, evidence: str | None) -> str:
    start = f"{mode.mode.value} promised {mode.mode.guarantee.value}: {mode.promise.value}."
    return " ".join([start, *_recovery(mode, evidence), _cost(mode.cost)])


def _recovery(mode: ModeReport, evidence: str | None) -> list[str]:
    done = mode.restoration
    if done is None:
        return [f"Nothing was restored: {'; '.join(mode.failures) or mode.result}."]
    if done.checkpoint is None:
        sentence = "Killed before any checkpoint was complete, it started from the beginning"
    else:
        point = f" while checkpoint {done.in_progress} was written" if done.in_progress else ""
        sentence = f"Killed{point}, it resumed from checkpoint {done.checkpoint}"
    if mode.failures:
        return [f"{sentence}.", *([f"{evidence}."] if evidence else []), f"Failed checks: {'; '.join(mode.failures)}."]
    return [f"{sentence}. {evidence or 'Its output: ' + mode.result}."]


def _cost(cost: Cost) -> str:
    parts = []
    if cost.median is not None:
        parts.append(f"a checkpoint took {duration_text(cost.median)} (median)")
    if cost.blocked_total is not None:
        blocked = cost.blocked_total
        parts.append(f"inputs were blocked for {duration_text(blocked)} in all" if blocked else "no input was blocked")
    if cost.in_flight is not None:
        rows = cost.in_flight
        parts.append(f"up to {rows:,} in-flight rows were stored" if rows else "no in-flight row was stored")
    return f"Cost: {', '.join(parts)}." if parts else "Cost: not measured."


def _costs_compared(modes: Sequence[ModeReport]) -> list[str]:
    """Return a sentence that names the cheapest and the dearest mode by time and by size; none for a single mode."""
    sentences = [
        *_extremes(modes, lambda cost: cost.median, duration_text, "Shortest checkpoints (median)", "longest"),
        *_extremes(modes, lambda cost: cost.state_bytes, lambda n: f"{n:,} bytes", "Smallest checkpoints", "largest"),
    ]
    return [" ".join(sentences)] if sentences else []


def _extremes(
    modes: Sequence[ModeReport],
    figure: Callable[[Cost], int | None],
    text: Callable[[int], str],
    least: str,
    most: str,
) -> list[str]:
    figures = sorted((value, mode.mode.value) for mode in modes if (value := figure(mode.cost)) is not None)
    if len(figures) < 2:
        return []
    (low, first), (high, last) = figures[0], figures[-1]
    if low == high:
        return []
    return [f"{least}: {first}, {text(low)}; {most}: {last}, {text(high)}."]
