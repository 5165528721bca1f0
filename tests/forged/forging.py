"""Forged checkpoints: real ones of several pipelines, changed at random, their checksums computed anew.

    python tests/forged/forging.py DIRECTORY PIPELINE FIRST LAST [threads]

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import xxhash

import dataflow as flow
import operators as op
from dataflow import col, when
from dataflow.errors import DataflowError
from dataflow.expressions import count
from dataflow.operator import Operator, OperatorContext, Snapshot
from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.state import codec
from dataflow.store.directory import DirectoryStore

__all__ = ["PIPELINES", "allowed"]

SECRET = "the secret of another user"
PATIENCE = 90
"""Seconds after which a process hangs: the machine may be busy."""
MEMORY = 600 << 20
"""Bytes that a restore of these small checkpoints may take beyond what the process had: most of it is fixed."""
ROWS = 600

# --- pipelines


def _rows() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "k": [f"key {n % 37}" for n in number],
            "c": pa.array([f"colour {n % 5}" for n in number]).dictionary_encode(),
            "x": number * 7 % 101,
            "f": (number % 13) / 4,
            "d": pa.array([int(n) for n in number], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            "t": pa.array(number * 1_000_000, pa.timestamp("us")),
        }
    )


def inputs(home: Path) -> None:
    """Files of each format, and one that no pipeline may read."""
    table = _rows()
    for part in range(3):
        piece = table.slice(part * 200, 200)
        plain = piece.select(["k", "x", "f"])
        for folder in ("csv", "json", "parquet", "ipc", "watched"):
            (home / "in" / folder).mkdir(parents=True, exist_ok=True)
        pa.csv.write_csv(plain, home / "in" / "csv" / f"{part}.csv")
        pa.csv.write_csv(plain, home / "in" / "watched" / f"{part}.csv")
        lines = "".join(f'{{"k": "{r["k"]}", "t": "{r["t"].isoformat()}", "x": {r["x"]}}}\n' for r in piece.to_pylist())
        (home / "in" / "json" / f"{part}.jsonl").write_text(lines)
        pq.write_table(piece, home / "in" / "parquet" / f"{part}.parquet", row_group_size=64)
        format_ = pa.ipc.new_stream if part == 1 else pa.ipc.new_file
        with format_(home / "in" / "ipc" / f"{part}.arrow", piece.schema) as writer:
            writer.write_table(piece, max_chunksize=64)
    (home / "home").mkdir()
    (home / "home" / "secret.csv").write_text(f"k,x,f\n{SECRET},1,1.0\n")
    (home / "home" / ".profile").write_text("exit\n")


def keyed(home: Path) -> flow.Pipeline:
    with flow.Pipeline("keyed") as p:
        rows = p.source(op.read_csv(str(home / "in" / "csv" / "*.csv"), batch_rows=20), name="in")
        rows.key_by("k").agg(
            count().alias("n"), col("x").sum(), col("f").mean(), col("k").min().alias("least"),
            col("x").count_distinct(), emit="updates",
        ).sink(op.write_parquet(home / "out"), name="out")  # fmt: skip
    return p


def windowed(home: Path) -> flow.Pipeline:
    with flow.Pipeline("windowed") as p:
        source = op.read_json(str(home / "in" / "json"), batch_rows=20)
        if source.schema.field("t").type != pa.timestamp("us"):
            source = op.read_json(str(home / "in" / "json"), batch_rows=20, schema={"t": pa.timestamp("us")})
        rows = p.source(source, name="in").with_watermark("t", delay="2s", name="time")
        rows.key_by("k").window(op.tumbling("50s")).agg(count().alias("n"), col("x").sum(), col("x").last()).sink(
            op.write_csv(home / "out"), name="out"
        )
    return p


def various(home: Path) -> flow.Pipeline:
    with flow.Pipeline("various") as p:
        rows = p.source(op.read_parquet(home / "in" / "parquet", batch_rows=20), name="in")
        rows.key_by("c", "x").agg(
            col("f").variance(), col("d").sum(), col("k").first().alias("first"), col("k").count_distinct(),
            col("k").arg_min("t").alias("at"), emit="final",
        ).sink(op.write_ipc(home / "out"), name="out")  # fmt: skip
        rows.select("c", "x").rebalance().sink(op.collect(), name="kept")
    return p


class Remembers(Operator):
    """A user's operator, which restores what it is given."""

    def __init__(self, context: OperatorContext) -> None:
        self._rows = 0
        if context.restored is not None and isinstance(context.restored.values.get("rows"), int):
            self._rows = int(context.restored.values["rows"])  # type: ignore[arg-type]

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        self._rows += batch.num_rows
        out.emit(batch)

    def snapshot(self) -> Snapshot:
        return Snapshot({"rows": self._rows % 1_000_000}, {"seen": pa.table({"rows": [self._rows % 1_000_000]})})


class UntilQuiet(Source):
    """A watched directory that ends when nothing is new."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    def splits(self) -> Any:
        return self._source.splits()

    def check(self, split: Split) -> None:
        self._source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _UntilQuiet(self._source.reader(split, offset, context))


class _UntilQuiet(SplitReader):
    def __init__(self, reader: SplitReader) -> None:
        self._reader = reader

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit:  # type: ignore[override]
        batch = self._reader.poll(min(max_rows, 20))
        return END if batch is None else batch  # type: ignore[return-value]

    @property
    def offset(self) -> Json:
        return self._reader.offset

    def close(self) -> None:
        self._reader.close()


def watching(home: Path) -> flow.Pipeline:
    with flow.Pipeline("watching") as p:
        source = UntilQuiet(op.watch(str(home / "in" / "watched"), op.read_csv, splits=2, remember=2, batch_rows=20))
        rows = p.source(source, name="in").apply(Remembers, name="user", schema=source.schema)
        rows.rebalance().sink(op.write_json(home / "out"), name="out")
    return p


def generated(home: Path) -> flow.Pipeline:
    with flow.Pipeline("generated") as p:
        made = p.source(op.generate({"id": op.sequence()}, rows=ROWS, splits=2, batch_rows=20), name="in")
        table = p.source(op.from_arrow(_rows().select(["x"]).rename_columns(["id"]), batch_rows=20, splits=2), name="t")
        made.union(table).key_by("id").agg(count().alias("n"), emit="final").sink(op.collect(), name="out")
    return p


def chosen(home: Path) -> flow.Pipeline:
    """Whole last rows, and first and last values of every kind of storage, with and without nulls."""
    with flow.Pipeline("chosen") as p:
        rows = p.source(op.read_ipc(home / "in" / "ipc", batch_rows=20), name="in")
        some = rows.with_columns(maybe=when(col("x") > 50).then(col("k")).otherwise(None))
        some.key_by("c").agg(
            op.latest("k", "f", "maybe", "d", by="t"), col("maybe").last(ignore_nulls=True).alias("known"),
            col("maybe").first().alias("first"), col("k").first(by="x").alias("by"), emit="updates",
        ).sink(op.write_csv(home / "out"), name="out")  # fmt: skip
    return p


def watched(home: Path) -> flow.Pipeline:
    """Directories whose files come in splits of their own formats."""
    with flow.Pipeline("watched") as p:
        parquet = UntilQuiet(op.watch(home / "in" / "parquet", op.read_parquet, remember=1, batch_rows=20))
        ipc = UntilQuiet(op.watch(home / "in" / "ipc", op.read_ipc, splits=2, batch_rows=20))
        first, second = (p.source(source).with_watermark("t", delay="5s") for source in (parquet, ipc))
        rows = first.union(second)
        windows = rows.key_by("k").window(op.tumbling("90s"), lateness="30s")
        windows.agg(count().alias("n"), op.latest("x", "c"), emit="updates").sink(
            op.write_parquet(home / "out"), name="out"
        )
    return p


PIPELINES = {f.__name__: f for f in (keyed, windowed, various, watching, generated, chosen, watched)}
MODES = ["unaligned-persisted", "aligned", "unaligned"]


def prepare(home: Path, name: str) -> None:
    """Run the pipeline in ``home``, and keep two checkpoints of its middle: the newer one with rows in flight."""
    inputs(home)
    mode = MODES[sorted(PIPELINES).index(name) % 2]
    mode = "unaligned-persisted" if name != "generated" else mode
    checkpoint = flow.Checkpointing(home / "ckpt", every="1ms", keep=1000, mode=mode)
    PIPELINES[name](home).run(flow.SimulatedRunner(3), checkpoint=checkpoint, parallelism=2)
    store = DirectoryStore(home / "ckpt")
    ids = store.checkpoints()
    middle = ids[1:-2] or ids
    flying = [n for n in middle if store.manifest(n).summary.get("in_flight_rows")]
    newest = (flying or middle)[len(flying or middle) // 2]
    print(f"{name}: {store.manifest(newest).summary.get('in_flight_rows')} rows in flight", file=sys.stderr)
    keep = {newest, max([n for n in ids if n < newest], default=newest)}
    for n in ids:
        if n not in keep:
            shutil.rmtree(home / "ckpt" / f"chk-{n:08d}")


# --- forgeries


def odd(dice: random.Random, home: Path) -> Any:
    """A value that is not expected somewhere."""
    deep: Any = 1
    for _ in range(dice.choice([3, 99, 150, 600])):
        deep = [deep] if dice.random() < 0.5 else {"a": deep}
    return dice.choice(
        [
            None, True, False, -1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**63,
            2**64, 10**30, 1.5, -0.0, 1e308, "", "..", "../../home/.profile", str(home / "home" / ".profile"),
            str(home / "home" / "secret.csv"), "../home/secret.csv", "a\0b", "x" * 5000, "\ud7ff", [], {}, [[]],
            [0] * 50, {"a": 1}, deep, "in[0]", "rows", "0",
        ]
    )  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in ``value`` with each of its keys."""
    waiting = [value]
    while waiting:
        outer = waiting.pop()
        items = outer.items() if isinstance(outer, dict) else enumerate(outer) if isinstance(outer, list) else ()
        for key, inner in list(items):
            yield outer, key
            waiting.append(inner)


def forge_json(value: Any, dice: random.Random, home: Path) -> str:
    """Change one place in ``value``; says which."""
    outer, key = dice.choice(list(places(value)))
    other, there = dice.choice(list(places(value)))
    match dice.choice(["odd", "odd", "odd", "delete", "copy", "nudge", "repeat"]):
        case "delete":
            del outer[key]
            return f"deleted {key!r}"
        case "copy":
            outer[key] = json.loads(json.dumps(other[there]))
            return f"{there!r} in place of {key!r}"
        case "nudge" if type(outer[key]) is int:
            outer[key] += dice.choice([-1, 1, 2, 1000, -1000, 2**31, 2**40])
            return f"{key!r} is {outer[key]}"
        case "repeat" if isinstance(outer, list):
            outer.append(json.loads(json.dumps(outer[key])))
            return f"{key!r} twice"
        case _:
            outer[key] = odd(dice, home)
            return f"{key!r} is {str(outer[key])[:60]!r}"


def forge_bytes(data: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Flip, overwrite or cut bytes."""
    found = bytearray(data)
    what = []
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(found))
        match dice.choice(["flip", "word", "word", "long"]):
            case "flip":
                found[at] ^= 1 << dice.randrange(8)
            case "word":
                at = at // 4 * 4
                number = dice.choice([0, 1, -1, 7, 127, 1000, 2**20, 2**31 - 1, -(2**31)])
                found[at : at + 4] = number.to_bytes(4, "little", signed=True)
            case _:
                at = at // 8 * 8
                number = dice.choice([0, 1, -1, 7, 1000, 2**20, 2**40, 2**63 - 1, -(2**63)])
                found[at : at + 8] = number.to_bytes(8, "little", signed=True)
        what.append(at)
    return bytes(found[: len(data)]), f"bytes at {what}"


def forge_table(table: pa.Table, dice: random.Random) -> tuple[pa.Table, str]:
    """Another table in its place, valid in itself."""
    if not table.num_columns:
        return pa.table({"x": [1]}), "a table with a column"
    i = dice.randrange(table.num_columns)
    name, column = table.schema.names[i], table.column(i)
    match dice.choice(["drop", "null", "type", "rows", "twice", "name", "extreme", "extreme", "order"]):
        case "drop":
            return table.drop_columns([name]), f"without {name}"
        case "null":
            return table.set_column(i, name, pa.nulls(table.num_rows, column.type)), f"{name} all null"
        case "type":
            type_ = dice.choice([pa.int8(), pa.string(), pa.null(), pa.float64(), pa.list_(pa.int64()), pa.int64()])
            return table.set_column(i, name, pa.nulls(table.num_rows, type_)), f"{name} as {type_}"
        case "rows":
            return table.slice(0, dice.randrange(table.num_rows + 1)), "fewer rows"
        case "twice":
            return pa.concat_tables([table, table]), "every row twice"
        case "name":
            return table.rename_columns([f"{n}!" if n == name else n for n in table.schema.names]), f"{name} renamed"
        case "extreme" if pa.types.is_integer(column.type) and table.num_rows:
            low, high = np.iinfo(column.type.to_pandas_dtype()).min, np.iinfo(column.type.to_pandas_dtype()).max
            values = [dice.choice([low, high, 0, 1, -1 if low else 1, high // 2]) for _ in range(table.num_rows)]
            return table.set_column(i, name, pa.array(values, column.type)), f"{name} extreme"
        case _:
            order = list(range(table.num_columns))
            dice.shuffle(order)
            return table.select([table.schema.names[j] for j in order]), "columns in another order"


def forge_part(data: bytes, dice: random.Random, home: Path) -> tuple[bytes, str]:
    kind = dice.choice(["json", "json", "bytes", "bytes", "bytes", "table", "table", "compressed"])
    if kind == "bytes":
        return forge_bytes(data, dice)
    values, tables = codec.decode(data)
    tables = dict(tables)
    if kind == "json" or not tables:
        what = forge_json(values, dice, home)
        body = codec.encode({}, tables).to_pybytes()
        return _with_values(body, values), what
    name = dice.choice(sorted(tables))
    if kind == "compressed":
        return _compressed(values, tables), "every table compressed"
    tables[name], what = forge_table(tables[name], dice)
    return codec.encode(values, tables).to_pybytes(), f"{name}: {what}"


def _compressed(values: Any, tables: dict[str, pa.Table]) -> bytes:
    """The part as a writer would make it that compresses."""

    def stream(table: pa.Table) -> Any:
        out = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=False)
        with pa.ipc.new_stream(out, table.schema, options=options) as writer:
            writer.write_table(table)
        return codec._Stream(table.num_rows, out.getvalue())

    plain, codec._stream = codec._stream, stream  # type: ignore[assignment]
    try:
        return codec.encode(values, tables).to_pybytes()
    finally:
        codec._stream = plain


def _with_values(part: bytes, values: Any) -> bytes:
    """A part whose values are whatever they are: ``codec.encode`` would refuse some."""
    magic, version, unused, length = codec._PREFIX.unpack(part[: codec._PREFIX.size])
    header = json.loads(part[codec._PREFIX.size : codec._PREFIX.size + length])
    header["values"] = values
    made = json.dumps(header).encode()
    start, before = codec._aligned(codec._PREFIX.size + len(made)), codec._aligned(codec._PREFIX.size + length)
    prefix = codec._PREFIX.pack(magic, version, unused, len(made)) + made
    return prefix + bytes(start - len(prefix)) + part[before:]


def sealed(manifest: Any) -> bytes:
    body = json.dumps(manifest).encode()
    return b'{"xxh3": "%s",\n"manifest": %s}\n' % (xxhash.xxh3_64_hexdigest(body).encode(), body)


def forge(home: Path, dice: random.Random) -> str:
    """Change the newest checkpoint, or what is beside it."""
    folder = sorted((home / "ckpt").glob("chk-*"))[-1]
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())["manifest"]
    kind = dice.choice(["manifest", "part", "part", "part", "part", "beside"])
    if kind == "manifest":
        what = forge_json(manifest, dice, home)
    elif kind == "part":
        part = dice.choice(manifest["parts"])
        file = folder / part["file"]
        data, what = forge_part(file.read_bytes(), dice, home)
        file.write_bytes(data)
        part["size"], part["xxh3"] = len(data), xxhash.xxh3_64_hexdigest(data)
        what = f"{part['task']}: {what}"
    else:
        what = forge_beside(home, dice)
    path.write_bytes(sealed(manifest))
    return f"{kind}: {what}"


def forge_beside(home: Path, dice: random.Random) -> str:
    """Links, and lists of what was committed."""
    lists = sorted((home / "out" / "_commits").glob("*.json")) if (home / "out" / "_commits").exists() else []
    if lists and dice.random() < 0.5:
        path = dice.choice(lists)
        listed = json.loads(path.read_bytes())
        what = forge_json(listed, dice, home)
        path.write_text(json.dumps(listed))
        return f"{path.name}: {what}"
    files = [path for top in ("ckpt", "out") for path in sorted((home / top).rglob("*")) if path.is_file()]
    path = dice.choice(files)
    path.unlink()
    path.symlink_to(home / "home" / dice.choice([".profile", "secret.csv"]))
    return f"a link in place of {path.relative_to(home)}"


# --- processes


def allowed(outcome: dict[str, Any]) -> str | None:
    """What is wrong with the end of a process; None: nothing."""
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
