"""One sentence for each phase of a comparison, printed before it: what happens next, and why."""

from __future__ import annotations

from dataflow.compare.options import KillPoint, Options, RunnerName, Scene
from dataflow.contracts.checkpointing import Mode

__all__ = [
    "BARRIER",
    "describe_kill",
    "describe_mode",
    "describe_restore",
    "describe_undisturbed_run",
    "describe_warm_up",
]

BARRIER = (
    "While a job runs it takes checkpoints: a marker, called a barrier, travels through the job together with the "
    "rows, and each operator stores its state when the barrier arrives. After a kill, the job resumes from its newest "
    "complete checkpoint. The modes differ in how a barrier passes rows that wait in queues."
)
"""The explanation of barriers, to print before the first phase."""

_BARRIERS = {
    Mode.ALIGNED: "an operator with several inputs waits until the barrier has arrived on all of them, and blocks the "
    "inputs that are ahead. This costs waiting, and no row is delivered twice.",
    Mode.UNALIGNED: "no input is blocked. Rows that follow a barrier are processed before the snapshot is taken, so a "
    "restore delivers them a second time, and reports these repeated deliveries.",
    Mode.UNALIGNED_PERSISTED: "a barrier overtakes the rows that wait in queues, and the checkpoint stores these "
    "in-flight rows. This costs space, and no row is delivered twice.",
    Mode.ALIGNED_TIMEOUT: "barriers are aligned as in mode aligned. After a timeout they overtake waiting rows, and "
    "the checkpoint stores these in-flight rows. No row is delivered twice.",
}
_MICRO_BATCHES = (
    "on Spark each micro-batch is a checkpoint. It is committed as a whole or read again as a whole, so no row is "
    "delivered twice."
)
_REASONS = {
    KillPoint.IN_CHECKPOINT: "while a checkpoint is half written. This is the worst moment, because a restore must "
    "ignore that checkpoint and use the one before.",
    KillPoint.AFTER_CHECKPOINT: "right after a checkpoint is complete, so that a restore must use this one.",
    KillPoint.BEFORE_CHECKPOINT: "before any checkpoint is complete, so that the job must start from the beginning.",
    KillPoint.NONE: "never.",
}


def describe_warm_up() -> str:
    """Return the sentence before the warm-up."""
    return "Warm-up: a short run compiles what is compiled only once, so that compiling is not measured below."


def describe_mode(mode: Mode, number: int, count: int, runner: RunnerName) -> str:
    """Return the sentence before the runs of a mode: the mode with its guarantee, and what it does with barriers.

    >>> describe_mode(Mode.ALIGNED, 1, 4, RunnerName.LOCAL)[:46]
    'Mode 1 of 4, aligned (exactly once): an operat'
    """
    explanation = _BARRIERS[mode] if runner is RunnerName.LOCAL else _MICRO_BATCHES
    return f"Mode {number} of {count}, {mode}: {explanation}"


def describe_undisturbed_run(mode: Mode) -> str:
    """Return the sentence before the run that is not killed."""
    return (
        f"{mode.value}, run without a kill: to measure what its checkpoints cost, and to get the output that a "
        "restored run must have."
    )


def describe_kill(mode: Mode, options: Options, attempt: int, missed: str) -> str:
    """Return the sentence before a kill.

    Args:
        mode: the mode of the job that is killed.
        options: where the kill happens, and after which checkpoint.
        attempt: which process this is, from 1.
        missed: why the attempt before failed; empty for the first one.
    """
    again = f" (attempt {attempt} of {options.attempts}, because the last one failed: {missed})" if missed else ""
    if options.runner is RunnerName.LOCAL:
        victim, reason = "a second process runs the same job and is", _REASONS[options.kill]
    else:
        victim = "driver, JVM and workers of a second run are"
        reason = "in the middle of a micro-batch, which must then be read again as a whole."
    return f"{mode.value}, kill{again}: {victim} killed with SIGKILL {reason}"


def describe_restore(mode: Mode, scene: Scene) -> str:
    """Return the sentence before a restore: what the kill left, and what the job does with it.

    >>> describe_restore(Mode.ALIGNED, Scene(complete=5, in_progress=6))[:79]
    'aligned, restore: the kill left checkpoint 5 complete and checkpoint 6 half wri'
    """
    if not scene.complete:
        return (
            f"{mode.value}, restore: the kill left no complete checkpoint, so the job starts from the beginning; then "
            "its output is compared."
        )
    unfinished = f" and checkpoint {scene.in_progress} half written" if scene.in_progress else ""
    return (
        f"{mode.value}, restore: the kill left checkpoint {scene.complete} complete{unfinished}. The job resumes from "
        f"checkpoint {scene.complete} and reads to the end of its input; then its output is compared."
    )
