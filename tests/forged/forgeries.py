"""Forgeries: changes of a checkpoint at random, with its checksums computed anew."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from dataflow.state import codec
from dataflow.store.folder import folder_name
from tests.forcing import forced

__all__ = ["forge"]


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
    compressed = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=False)
    with forced(codec, "_OPTIONS", compressed, calls=codec.encode):
        return codec.encode(values, tables).to_pybytes()


def _with_values(part: bytes, values: Any) -> bytes:
    """A part whose values are whatever they are: ``codec.encode`` would refuse some."""
    length = int.from_bytes(part[-16:-8], "little")
    index = json.loads(part[-16 - length : -16])
    index["values"] = values
    made = json.dumps(index).encode()
    return part[: -16 - length] + made + len(made).to_bytes(8, "little") + codec.END


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
        written = part.get("checkpoint")  # an older one, or none: this one
        file = (folder.parent / folder_name(written) if written else folder) / part["file"]
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
