"""What a savepoint costs: the copy of one checkpoint, compared with ``cp`` and ``sync`` of the same files.

Both are done in turn, and the medians compared. The target is a ratio of at most 1.3.

    python -m benchmarks.export --megabytes 512 --parts 8 --rounds 5
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from dataflow.store.directory import DirectoryStore
from dataflow.store.export import Export
from dataflow.store.manifest import FORMAT, Manifest

__all__ = ["main", "ratios"]


def _checkpoint(store: DirectoryStore, megabytes: int, parts: int) -> None:
    """Write checkpoint 1, with ``megabytes`` in ``parts`` objects."""
    piece = os.urandom(1 << 20)
    each = max(1, megabytes // parts)
    handles = tuple(store.write(1, f"task-{n}", iter([piece] * each)) for n in range(parts))
    names = {"kind": "checkpoint", "pipeline": "p", "mode": "aligned", "guarantee": "exactly once", "run_id": "a"}
    store.commit(
        Manifest(format=FORMAT, checkpoint=1, finished=False, created=0.0, job="0" * 32, parts=handles, **names)
    )


def ratios(directory: Path, megabytes: int, parts: int, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a savepoint, and of ``cp`` and ``sync``."""
    exports, copies = list[float](), list[float]()
    with DirectoryStore(directory / "ckpt") as store:
        _checkpoint(store, megabytes, parts)
        os.sync()
        for _ in range(rounds):
            begun = time.perf_counter()
            export = Export(directory / "saved")
            export.reserve()
            export.copy(store, 1)
            export.release()
            exports.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            subprocess.run(["cp", "-r", str(store.folder(1).path), str(directory / "copy")], check=True)
            files = sorted(str(file) for file in (directory / "copy").iterdir())
            subprocess.run(["sync", *files, str(directory / "copy")], check=True)
            copies.append(time.perf_counter() - begun)
            shutil.rmtree(directory / "saved")
            shutil.rmtree(directory / "copy")
            os.sync()
    return statistics.median(exports), statistics.median(copies)


def main(arguments: list[str] | None = None) -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=None, help="where to write; default: the system's temporary directory")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        export, copy = ratios(Path(directory), options.megabytes, options.parts, options.rounds)
    size = f"{options.megabytes} MB in {options.parts} parts"
    print(f"{size}: savepoint {export:.3f} s, cp and sync {copy:.3f} s, ratio {export / copy:.2f}")


if __name__ == "__main__":
    main()
