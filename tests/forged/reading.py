"""Reading of forged checkpoints by the commands and by ``flow.Checkpoint``.

    python -m tests.forged.reading DIRECTORY PIPELINE FIRST LAST

takes checkpoints of the pipeline in DIRECTORY, and reads a forgery for each seed. It prints a line of JSON for each
seed: what was changed, and the errors that are no ``DataflowError``.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

import dataflow as flow
from dataflow.cli import main as barrierflow
from dataflow.errors import DataflowError
from tests.forged.forgeries import forge
from tests.forged.pipelines import prepare

__all__ = ["errors_of"]


def errors_of(directory: Path) -> list[str]:
    """Read everything in ``directory``; return the errors that no reader of a checkpoint may raise."""
    found: list[str] = []

    def attempt(read: Callable[[], object]) -> None:
        try:
            read()
        except DataflowError:
            pass
        except Exception as error:
            found.append("".join(traceback.format_exception(error)[-6:]))

    ids = [str(int(path.name[4:])) for path in directory.glob("chk-*")]
    commands = [["ls"], ["verify"], *[["show", number] for number in ids]]
    for command, *numbers in commands:
        for form in ([], ["--json"]):
            done = CliRunner().invoke(barrierflow, ["checkpoints", command, str(directory), *numbers, *form])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                found.append("".join(traceback.format_exception(done.exception)[-6:]))
            if any(not c.isprintable() and c != "\n" for c in done.stdout + done.stderr):
                found.append(f"{command} printed a control character: {done.stdout + done.stderr!r}"[:3_000])
    for number in ids:
        attempt(lambda number=number: read_all(directory / f"chk-{int(number):08d}", attempt))  # type: ignore[misc]
    return found


def read_all(folder: Path, attempt: Callable[[Callable[[], object]], None]) -> None:
    checkpoint = flow.Checkpoint(folder)
    attempt(lambda: (repr(checkpoint), checkpoint.objects))
    attempt(checkpoint.duplicates)
    for operator in checkpoint.operators:
        attempt(lambda operator=operator: checkpoint.state(operator).to_pylist())  # type: ignore[misc]
        attempt(lambda operator=operator: checkpoint.state(operator, "values"))  # type: ignore[misc]
    for channel in checkpoint.channels:
        attempt(lambda channel=channel: checkpoint.channel(channel.source, channel.target).to_pylist())  # type: ignore[misc]


def main(directory: str, name: str, first: str, last: str) -> None:
    home = Path(directory)
    template, work = home / "template", home / "work"
    work.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(work, name)
    shutil.copytree(work, template, symlinks=True)
    for seed in range(int(first), int(last)):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(template, work, symlinks=True)
        what = forge(work, random.Random(f"{name} {seed}"))
        print(json.dumps({"seed": seed, "what": what, "wrong": errors_of(work / "ckpt")}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
