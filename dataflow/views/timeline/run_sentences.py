"""Sentences about a whole run: its checkpoints, the input that was blocked longest, crashes and restores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dataflow.clock import duration_text
from dataflow.views.sentence import Sentence, Strong, Word, counted
from dataflow.views.timeline.run_facts import RunFacts

__all__ = ["run_sentences_of"]


def run_sentences_of(run: RunFacts) -> tuple[Sentence, ...]:
    """Return what to say about a run: ``checkpoints``, ``blocked``, ``attempts``, ``failed``, ``missing``, ...

    The last one is ``not measured``.
    """
    return tuple(_sentences(run))


def _sentences(run: RunFacts) -> Iterator[Sentence]:
    yield _checkpoints(run)
    sums: Counter[str] = Counter()
    for blocked in run.blocked:
        sums[blocked.channel] += blocked.length(blocked.begin)
    if sums:
        channel, longest = max(sums.items(), key=lambda item: item[1])
        time = Strong(duration_text(longest))
        words: tuple[Word, ...] = (Strong(channel), " was blocked longest, ", time, " in all.")
        yield Sentence("blocked", words, {"blocked": longest})
    for before, after in zip(run.attempts, run.attempts[1:], strict=False):
        how = f"was {before.outcome}" if before.outcome in ("stopped", "cancelled") else before.outcome
        error = f" ({before.error})" if before.error else ""
        start = "from the beginning" if after.restored is None else f"from checkpoint {after.restored}"
        gap = after.begin + after.left_out - before.end - before.left_out
        mode = f", in mode {after.mode.text}" if after.mode != before.mode and after.mode.mode else ""
        words = (f"Attempt {before.number} {how}{error} after ", Strong(duration_text(before.end - before.begin)),
                 "; ", Strong(duration_text(gap)), f" later the job began again {start}{mode}.")  # fmt: skip
        yield Sentence("attempts", words, {"attempt": before.number, "gap": gap})
    last = run.attempts[-1] if run.attempts else None
    if last is not None and last.outcome == "failed":
        length = Strong(duration_text(last.end - last.begin))
        error = f": {last.error}" if last.error else ""
        yield Sentence("failed", ("The job failed after ", length, f"{error}."), {"attempt": last.number})
    if run.earlier:
        yield Sentence("attempts", (f"{counted(run.earlier, 'earlier attempt')} not shown.",), {"earlier": run.earlier})
    if run.missed:
        why = "because buffers are bounded: samples are dropped first, then the oldest checkpoints."
        yield Sentence("missing", (f"{counted(run.missed, 'event')} are missing, {why}",), {"missed": run.missed})
    if not run.plan.is_measured:
        yield Sentence("not measured", ("Barriers and blocked inputs are not measured on Spark.",))


def _checkpoints(run: RunFacts) -> Sentence:
    durable = [span for span in run.checkpoints if span.is_durable]
    failed = [span for span in run.checkpoints if span.failure is not None and not span.is_durable]
    if not run.checkpoints:
        why = (
            "No checkpoint was triggered."
            if any([mode.mode for mode in run.modes])
            else "The run took no checkpoints: it had no checkpoint=."
        )
        return Sentence("checkpoints", (why,))
    count = counted(len(durable), "checkpoint") if durable else "No checkpoint"
    words: list[Word] = [f"{count} {'were' if len(durable) > 1 else 'was'} durable"]
    if failed:
        words += [", and ", Strong(f"{len(failed)} failed")]
    slowest = max(durable, key=lambda span: (span.ended or 0) - span.triggered, default=None)
    if slowest is not None and slowest.ended is not None:
        time = Strong(duration_text(slowest.ended - slowest.triggered))
        words += ["; the slowest was checkpoint ", Strong(str(slowest.checkpoint)), " with ", time]
    return Sentence("checkpoints", (*words, "."), {"durable": len(durable), "failed": len(failed)})
