"""The kept directories, one ``.tar.gz`` each: checkpoints have many small files, and empty folders."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

__all__ = ["MODES", "SPARK", "move", "pack", "unpack"]

HERE = Path(__file__).parent
MODES = ("aligned", "unaligned", "unaligned-persisted")
SPARK = "spark"
PLACE = "/kept"
"""Where a kept directory lies in Spark's notes on its state: the only files with an absolute path."""


def pack(directory: Path, name: str) -> Path:
    """Store ``directory`` as the archive ``name``, without times, users and its place."""
    move(directory, str(directory), PLACE)
    archive = HERE / f"{name}.tar.gz"
    with (
        gzip.GzipFile(archive, "wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        tar.add(directory, ".", filter=_plain)
    return archive


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(name: str, directory: Path) -> Path:
    """Unpack the archive ``name`` into ``directory``, and return it."""
    with tarfile.open(HERE / f"{name}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    move(directory, PLACE, str(directory))
    return directory


def move(directory: Path, old: str, new: str) -> None:
    """Let Spark's notes in ``directory`` say that it lies at ``new``, without their checksums of their ``old`` text."""
    for note in directory.glob("ckpt/spark/state/*/_metadata/v2/[0-9]*"):
        note.write_text(note.read_text().replace(f"file:{old}/", f"file:{new}/"))
        note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
