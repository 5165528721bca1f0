"""Every object of a chain, damaged in every way: the restored state is the same, or an error names the object.

The default run takes a sample of the damages; ``-m soak`` changes every byte of every object.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointError
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.protocol.events import Data
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.restore.find_checkpoint import find
from dataflow.runtime.task.parts import TaskState
from dataflow.store.manifest import LOG, Manifest
from tests.seeds import in_soak, seeds

MODES = ("aligned", "unaligned-persisted")
TABLE = pa.table({"x": range(400), "text": [f"row {x:03} " * 6 for x in range(400)]})
FLIPS = (0x01, 0x10, 0x80, 0xFF)


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("damaged") as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=2, splits=2), name="in").rebalance()
        rows.sink(op.collect(), name="out", parallelism=2)
        keyed = rows.select("x", k=col("x") % 60, name="keys").key_by("k")
        keyed.agg(n=op.count(), s=col("x").sum(), emit="final", name="sums").sink(op.collect(), name="totals")
    return p


@dataclass(frozen=True, slots=True)
class Chain:
    """A checkpoint in a directory, the objects that a restore reads, and the state that it gives."""

    path: Path
    checkpoint: int
    objects: Sequence[Path]
    plan: Plan
    state: str

    def restore(self) -> str:
        """Restore the checkpoint; return its state, all of it, as text."""
        restored = find(self.checkpoint, flow.DirectoryStore(self.path), self.plan)
        assert restored is not None
        return text_of(restored.manifest, restored.states)

    def check(self, *damaged: Path) -> str | None:
        """Check what a restore gives; return the error, None: the same state as before."""
        try:
            state = self.restore()
        except CheckpointError as error:
            what = str(error)
            names = [path.name if path.suffix == ".part" else path.parent.name for path in damaged]
            names += [f"checkpoint {self.checkpoint} " for path in damaged if path.suffix != ".part"]
            assert any(name in what for name in names), f"expected an error that names one of {names}, found: {what}"
            return what
        assert state == self.state, f"another state after damage to {[str(path) for path in damaged]}"
        return None


def text_of(manifest: Manifest, states: Mapping[str, TaskState]) -> str:
    def plain(value: Any) -> Any:
        match value:
            case pa.Table() | pa.RecordBatch():
                return [str(value.schema), value.to_pylist()]
            case Data(rows=rows):
                return ["rows", plain(rows)]
            case Mapping():
                return {key: plain(inner) for key, inner in value.items()}
            case list() | tuple():
                return [plain(inner) for inner in value]
            case _:
                return value

    fields = ("task", "ended", "inlet", "duplicates", "in_flight")
    content = [
        [
            *(plain(getattr(state, name)) for name in fields[:3]),
            [[d.operator, d.channel, d.rows, plain(d.table)] for d in state.duplicates],
            [[c.operator, c.channel, plain(c.schema), plain(c.elements)] for c in state.in_flight],
            {name: plain([o.values, o.tables, o.logs]) for name, o in state.operators.items()},
        ]
        for state in states.values()
    ]
    return repr([manifest, content])


def taken(path: Path, mode: str, seed: int = 1) -> Path:
    """Run a job, and leave its checkpoints up to the one with the longest chains."""
    path.mkdir(parents=True)
    checkpoint = flow.Checkpointing(path / "ckpt", mode=mode, every="500us", keep=50, max_concurrent=3)
    pipeline().run(SimulatedRunner(seed), parallelism=2, checkpoint=checkpoint, channel_credit=1)
    store = flow.DirectoryStore(path / "ckpt")
    longest = longest_of(store)
    for newer in [n for n in store.checkpoints() if n > longest]:
        shutil.rmtree(store.folder(newer).path)
    return path / "ckpt"


def longest_of(store: flow.DirectoryStore) -> int:
    """Return the checkpoint that names most objects."""
    return max(store.checkpoints()[1:], key=lambda n: len(store.manifest(n).parts))


@pytest.fixture(scope="module", params=["unaligned-persisted", *in_soak("aligned")])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taken(tmp_path_factory.mktemp("chain") / "job", request.param)


@pytest.fixture
def chain(kept: Path, tmp_path: Path) -> Chain:
    path = tmp_path / "ckpt"
    shutil.copytree(kept, path)
    store = flow.DirectoryStore(path)
    longest = longest_of(store)
    manifest = store.manifest(longest)
    lengths = Counter(part.task for part in manifest.parts if part.part == LOG)
    assert len(lengths) >= 4, "several tasks have logs"
    assert max(lengths.values()) >= 4, "there is a base with several deltas"
    objects = [store.folder(part.checkpoint or longest).path / part.file for part in manifest.parts]
    plan = make_plan(pipeline().graph, parallelism=2)
    restored = find(longest, store, plan)
    assert restored is not None
    state = text_of(restored.manifest, restored.states)
    return Chain(path, longest, [*objects, store.folder(longest).path / "manifest.json"], plan, state)


# --- damages of one object


def fields_of(data: bytes) -> list[int]:
    """Return the positions of every structural field of an object, and of the bytes around it."""
    if not data.startswith(b"BARRIERF"):  # the manifest
        return [at for at, byte in enumerate(data) if byte in b'{}[]:",\n']
    length = int.from_bytes(data[-16:-8], "little")
    index = len(data) - 16 - length
    places = [0, 7, 8, 11, 12, 16, 63, 64, index - 1, len(data) - 16, len(data) - 9, len(data) - 8, len(data) - 1]
    places += [index + at for at, byte in enumerate(data[index:-16]) if byte in b"{}[]:"]
    for table in json.loads(data[index:-16])["tables"]:
        first, end = 64 + table["offset"], 64 + table["offset"] + table["length"]
        # the marker and the length of a message, the end of the metadata, and the end of the stream
        metadata = int.from_bytes(data[first + 4 : first + 8], "little")
        places += [first, first + 4, first + 8, first + 8 + metadata, first + 12 + metadata, end - 8, end - 4, end - 1]
    return sorted({at for at in places if 0 <= at < len(data)})


def damages(data: bytes, dice: random.Random, *, all_bytes: bool) -> Iterator[tuple[str, bytes | None]]:
    """Yield what may become of an object, with a description; None: it is missing."""
    places = fields_of(data)
    randoms = [dice.randrange(len(data)) for _ in range(20)]
    for at in range(len(data)) if all_bytes else [*places, *randoms]:
        flip = dice.choice(FLIPS)
        yield f"byte {at} changed by {flip:#x}", data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
    for at in [*places, *randoms]:
        yield f"cut at {at}", data[:at]
        size = dice.choice((1, 8, 64, 512))
        zeros = data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
        yield f"{size} zeros at {at}", zeros
        yield f"a byte lost at {at}", data[:at] + data[at + 1 :]
        yield f"a byte twice at {at}", data[:at] + data[at : at + 1] + data[at:]
    for more in (b"\0", b"\n", bytes(64), data[-16:], data):
        yield f"{len(more)} bytes more", data + more
    yield "empty", b""
    yield "only zeros", bytes(len(data))
    yield "missing", None


def put(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("most", [16, *in_soak(40, None)])
def test_a_damaged_object_gives_the_same_state_or_an_error_that_names_it(chain: Chain, most: int | None) -> None:
    """``most`` damages of each object; None: all, and each byte changed."""
    dice, noticed, same = random.Random(5), 0, list[str]()
    for path in chain.objects:
        data = path.read_bytes()
        found = list(damages(data, dice, all_bytes=most is None))
        for what, changed in found if most is None else dice.sample(found, most):
            if changed == data:
                continue
            put(path, changed)
            if chain.check(path) is None:
                same.append(f"{path.name}: {what}")
            else:
                noticed += 1
        put(path, data)
    assert chain.restore() == chain.state
    assert noticed > (300 if most is None else 7.5 * most)
    assert all(name.startswith("manifest.json: ") for name in same), same  # white space between its fields


# --- objects in the place of others


def exchanged(chain: Chain, one: Path, other: Path) -> None:
    """Exchange two objects, check what a restore gives, and put them back."""
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    noticed = chain.check(one, other)
    assert noticed or contents[0] == contents[1], f"{one} and {other} were exchanged"
    one.write_bytes(contents[0])
    other.write_bytes(contents[1])


def pairs(objects: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    for number, one in enumerate(objects):
        for other in objects[:number]:
            yield one, other


@pytest.mark.parametrize("most", [24, *in_soak(60, None)])
def test_exchanged_objects_are_noticed(chain: Chain, most: int | None) -> None:
    every = list(pairs(chain.objects[:-1]))
    for one, other in every if most is None else random.Random(3).sample(every, most):
        exchanged(chain, one, other)


def test_exchanged_objects_of_equal_size_are_noticed(chain: Chain) -> None:
    """Of different tasks, and of different checkpoints: neither the size nor the name of a file shows it."""
    equal = [(a, b) for a, b in pairs(chain.objects[:-1]) if a.stat().st_size == b.stat().st_size]
    assert any(a.parent == b.parent for a, b in equal), "two tasks"
    assert any(a.parent != b.parent for a, b in equal), "two checkpoints"
    for one, other in equal:
        exchanged(chain, one, other)


@pytest.mark.parametrize("change", ["folders", "manifests"])
def test_exchanged_checkpoints_are_noticed(chain: Chain, change: str) -> None:
    older = max(n for n in flow.DirectoryStore(chain.path).checkpoints() if n < chain.checkpoint)
    folders = [flow.DirectoryStore(chain.path).folder(n).path for n in (older, chain.checkpoint)]
    one, other = [folder / "manifest.json" for folder in folders] if change == "manifests" else folders
    one.rename(chain.path / "aside")
    other.rename(one)
    (chain.path / "aside").rename(other)
    assert chain.check(folders[1] / "manifest.json") is not None


def test_objects_of_another_run_are_noticed(chain: Chain, tmp_path: Path) -> None:
    """Objects of the same names, tasks and checkpoints, such as those of a backup of another directory."""
    mode = flow.DirectoryStore(chain.path).manifest(chain.checkpoint).mode
    other, replaced = taken(tmp_path / "other", mode, seed=2), 0
    for path in chain.objects[:-1]:
        data, foreign = path.read_bytes(), other / path.relative_to(chain.path)
        if foreign.exists() and foreign.read_bytes() != data:
            path.write_bytes(foreign.read_bytes())
            assert chain.check(path) is not None
            path.write_bytes(data)
            replaced += 1
    assert replaced > 3


def test_damage_to_other_checkpoints_changes_nothing(chain: Chain) -> None:
    for path in sorted(chain.path.glob("chk-*/*")):
        if path not in chain.objects:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert chain.restore() == chain.state


# --- whole jobs


def whole(result: flow.RunResult) -> bool:
    rows = result.table("out").sort_by("x")
    totals = sorted((row["k"], row["n"], row["s"]) for row in result.table("totals").to_pylist())
    expected = [(k, len(range(k, 400, 60)), sum(range(k, 400, 60))) for k in range(60)]
    return bool(rows.equals(TABLE)) and totals == expected


@pytest.mark.parametrize("seed", seeds(2, 400))
@pytest.mark.filterwarnings("ignore::dataflow.errors.CheckpointSkippedWarning")
def test_a_job_on_a_damaged_directory_gives_the_whole_result_or_an_error(chain: Chain, seed: int) -> None:
    """A job passes a damaged checkpoint over for an older one, so the result is whole whichever it restores."""
    dice = random.Random(seed)
    for path in dice.sample(chain.objects, dice.choice((1, 1, 2, 5))):
        data = path.read_bytes()
        put(path, dice.choice(list(damages(data, dice, all_bytes=False)))[1])
    mode = dice.choice(MODES)
    checkpoint = flow.Checkpointing(chain.path, mode=mode, every="3ms")
    try:
        result = pipeline().run(SimulatedRunner(seed), parallelism=2, checkpoint=checkpoint)
    except CheckpointError:  # none is left
        return
    assert whole(result)
