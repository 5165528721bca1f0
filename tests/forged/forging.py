"""Restores of forged checkpoints, each in a process of its own.

    python -m tests.forged.forging DIRECTORY PIPELINE FIRST LAST [threads]

takes checkpoints of the pipeline in DIRECTORY, and for each seed restores a forgery in a process of its own: simulated,
or with ``threads`` on the threads of the local runner. It prints a line of JSON for each seed: what was changed, and
the outcome of the process; ``allowed`` returns what is wrong with an outcome.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataflow as flow
from dataflow.errors import DataflowError
from tests.forged.forgeries import forge
from tests.forged.pipelines import PIPELINES, SECRET, prepare

__all__ = ["allowed"]

PATIENCE = 90
"""Seconds after which a process hangs: the machine may be busy."""
MEMORY = 600 << 20
"""Bytes that a restore of these small checkpoints may take beyond what the process had: most of it is fixed."""


def allowed(outcome: dict[str, Any]) -> str | None:
    """Return what is wrong with the outcome of a process; None: nothing."""
    if outcome.get("signal"):
        return f"killed by signal {outcome['signal']}"
    if outcome.get("hangs"):
        return "it hangs"
    if outcome["touched"]:
        return f"changed files of others: {outcome['touched']}"
    if outcome["leaked"]:
        return f"read a file of others: {outcome['leaked']}"
    if outcome["memory"] > MEMORY:
        return f"took {outcome['memory']:,} bytes"
    if outcome["error"] and not outcome["expected"]:
        return f"raised {outcome['error']}"
    return None


def restored(
    home: Path, name: str, restore: object, report: Callable[[dict[str, Any]], None], *, threads: bool = False
) -> None:
    """In a process of its own: restore, run to the end, and report."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found: dict[str, Any] = {"error": None, "expected": True, "leaked": None}
    checkpoint = flow.Checkpointing(home / "ckpt", every="1ms", keep=1000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = flow.LocalRunner() if threads else flow.SimulatedRunner(5, max_turns=60_000)
            result = PIPELINES[name](home).run(runner, checkpoint=checkpoint, parallelism=2, restore=restore)
        for sink in ("out", "kept"):
            if any(sink == node.name for node in PIPELINES[name](home).graph) and not (home / "out").exists():
                found["leaked"] = SECRET if SECRET in str(result.table(sink).to_pylist()) else None
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        found["expected"] = isinstance(error, DataflowError | OverflowError) and not isinstance(error, TimeoutError)
        if not found["expected"]:
            found["error"] += "\n" + "".join(traceback.format_exception(error)[-12:])
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    report(found)


def state_of_others(home: Path) -> dict[str, str]:
    """The files that a restore may not change."""
    kept = [path for path in home.rglob("*") if path.relative_to(home).parts[0] not in ("out", "ckpt")]
    return {str(p.relative_to(home)): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept if p.is_file()}


def attempt(template: Path, work: Path, name: str, seed: int, *, threads: bool = False) -> dict[str, Any]:
    """One forgery, in a copy of what the pipeline left."""
    dice = random.Random(f"{name} {seed}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(template, work, symlinks=True)
    what = forge(work, dice)
    newest = _newest(work)
    restore: object = dice.choice(["auto", "latest", newest, newest, str(work / "ckpt" / f"chk-{newest:08d}")])
    others = state_of_others(work)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            report = lambda found: os.write(write, json.dumps(found).encode()) and None  # noqa: E731
            restored(work, name, restore, report, threads=threads)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    outcome: dict[str, Any] = {"seed": seed, "what": what, "restore": str(restore)}
    ready, _, _ = select.select([read], [], [], PATIENCE)
    if not ready:
        os.kill(child, signal.SIGKILL)
        outcome["hangs"] = True
    said = b"".join(iter(lambda: os.read(read, 1 << 16), b""))
    os.close(read)
    _, status = os.waitpid(child, 0)
    outcome |= {"error": "it said nothing", "expected": False, "leaked": None, "memory": 0}
    outcome |= json.loads(said) if said else {}
    outcome["signal"] = 0 if outcome.get("hangs") else os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    now = state_of_others(work)
    outcome["touched"] = sorted(key for key in others.keys() | now.keys() if others.get(key) != now.get(key))
    for path in (work / "out").rglob("*") if (work / "out").exists() else ():
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
            outcome["leaked"] = str(path)
    outcome["wrong"] = allowed(outcome)
    return outcome


def _newest(work: Path) -> int:
    return max(int(path.name[4:]) for path in (work / "ckpt").glob("chk-*"))


def main(directory: str, name: str, first: str, last: str, runner: str = "simulated") -> None:
    """Prepare in this process, so that what its children need is loaded; the simulation leaves no thread behind."""
    home = Path(directory)
    template, work = home / "template", home / "work"  # splits have the path of the directory: forgeries run there
    work.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(work, name)
    shutil.copytree(work, template, symlinks=True)
    for seed in range(int(first), int(last)):
        began = time.monotonic()
        outcome = attempt(template, work, name, seed, threads=runner == "threads")
        outcome["seconds"] = round(time.monotonic() - began, 2)
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
