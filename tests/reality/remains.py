"""What a killed process left on the disk, and what that says it was doing: it gets no chance to say so itself.

What cannot be read off the disk: whether barriers were on their way before the first part of a checkpoint was begun
(such a kill counts as between two checkpoints), and whether a staged file was still open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pyarrow.parquet as pq

from dataflow.store.directory import DirectoryStore
from dataflow.store.files import TEMPORARY
from dataflow.store.folder import MANIFEST
from dataflow.store.manifest import Manifest
from operators.sinks.directory import STAGED
from operators.sinks.parquet import committed_files


class Landing(Enum):
    """Where a kill found the process."""

    UNSTARTED = "before it began to build the job"
    RESTORING = "while it built or restored the job"
    BEFORE_FIRST = "before the first checkpoint"
    IN_PROGRESS = "during a checkpoint in progress"
    UNCOMMITTED = "between manifest and commit"
    BETWEEN = "between two checkpoints"
    AFTER_END = "after the end"


class Commit(Enum):
    """How far the commit of a durable checkpoint had come when it was cut short."""

    NOTHING = "no file moved"
    MOVED = "files moved, none listed"
    SOME_SINKS = "some sinks committed"


class Writing(Enum):
    """A file that was being written: its temporary name is still there. The value is how the name ends."""

    PART = ".part"
    MANIFEST = MANIFEST
    COMMIT_LIST = ".json"
    OTHER = ""


@dataclass(frozen=True, slots=True)
class Remains:
    """One kill.

    ``parts``: how many are whole of the checkpoint in progress, if any. ``commit``: of the newest checkpoint, if that
    was cut short. ``staged``: sink files that no commit has moved. ``cleaning``: an older checkpoint was being deleted.
    """

    landing: Landing
    parts: int | None = None
    commit: Commit | None = None
    writing: tuple[Writing, ...] = ()
    staged: int = 0
    cleaning: bool = False


def remains(work: Path, sinks: Mapping[str, str]) -> Remains:
    """Return what a job that ran has left in ``work``; ``sinks`` has the folder of each of its sinks."""
    existing = list(manifests(work))
    newest = existing[-1].checkpoint if existing else 0
    unfinished = [name for name, whole in folders(work).items() if not whole]
    begun = [name for name in unfinished if int(name.removeprefix("chk-")) > newest]
    commit = _cut_short(work, existing[-1], sinks) if existing else None
    if commit is not None:
        landing = Landing.UNCOMMITTED
    elif existing and existing[-1].finished:
        landing = Landing.AFTER_END
    elif begun:
        landing = Landing.IN_PROGRESS
    else:
        landing = Landing.BETWEEN if existing else Landing.BEFORE_FIRST
    return Remains(
        landing,
        parts=parts(work, begun[-1]) if begun else None,
        commit=commit,
        writing=tuple(_writing(path) for path in sorted(work.rglob(f"*{TEMPORARY}"))),
        staged=sum(len(list((work / folder / "_staging").glob(f"*{STAGED}"))) for folder in sinks.values()),
        cleaning=len(unfinished) > len(begun),
    )


def _writing(path: Path) -> Writing:
    name = path.name.removesuffix(TEMPORARY)
    return next(writing for writing in Writing if name.endswith(writing.value))


def _cut_short(work: Path, manifest: Manifest, sinks: Mapping[str, str]) -> Commit | None:
    owed = {sinks[sink]: handles for sink, handles in manifest.transactions.items() if handles}
    listed = [folder for folder in owed if (work / folder / "_commits" / f"{manifest.checkpoint}.json").exists()]
    if len(listed) == len(owed):
        return None
    if listed:
        return Commit.SOME_SINKS
    moved = any((work / folder / str(h["file"])).exists() for folder, handles in owed.items() for h in handles)
    return Commit.MOVED if moved else Commit.NOTHING


def folders(work: Path) -> dict[str, bool]:
    """The checkpoint folders there are, and whether each has its manifest."""
    ckpt = work / "ckpt"
    names = [name for name in os.listdir(ckpt) if name.startswith("chk-")] if ckpt.exists() else []
    return {name: (ckpt / name / MANIFEST).exists() for name in sorted(names)}


def parts(work: Path, name: str) -> int:
    """Return how many whole parts the checkpoint folder ``name`` holds: none if it was deleted meanwhile."""
    with suppress(FileNotFoundError):
        return sum(file.endswith(".part") for file in os.listdir(work / "ckpt" / name))
    return 0


def manifests(work: Path) -> Iterator[Manifest]:
    """The manifests of existing checkpoints, oldest first."""
    store = DirectoryStore(work / "ckpt")
    return (store.manifest(n) for n in store.checkpoints())


def check_visible(work: Path, sinks: Mapping[str, str]) -> None:
    """Every final file is whole, and is in a commit list or in a durable checkpoint that the restart commits."""
    durable = list(manifests(work))
    for sink, folder in sinks.items():
        directory = work / folder
        listed = {str(path.relative_to(directory)) for path in committed_files(directory)}
        owed = {str(handle["file"]) for m in durable for handle in m.transactions.get(sink, ())}
        for path in directory.glob("**/*.parquet"):
            pq.ParquetFile(path).read()
            assert str(path.relative_to(directory)) in listed | owed, f"{path} holds rows that no checkpoint committed"


def check_finished(work: Path, sinks: Mapping[str, str]) -> None:
    """Nothing is staged any more, and the commit lists name exactly the files there are."""
    for folder in sinks.values():
        directory = work / folder
        assert not list((directory / "_staging").glob(f"*{STAGED}"))
        assert sorted(committed_files(directory)) == sorted(directory.glob("**/*.parquet"))
