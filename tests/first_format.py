"""Writes checkpoint directories of format 1, which have no logs: every part holds the whole state of its task.

Nothing here calls the encoders of the library: they write the newest format only. Layout of a part of version 1: the
magic, the version and the length of the index at byte 16; the index at byte 24; then one Arrow stream for each table,
each at a multiple of 64 bytes, with offsets from the first stream.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

import dataflow as flow
from dataflow.protocol.events import Data, EndOfInput, Idle, Watermark
from dataflow.runtime.task.parts import ChannelState, TaskState
from tests.checkpoints import task_states

__all__ = ["first_format", "part_of_version_1"]


def first_format(store: flow.DirectoryStore, checkpoint: int, directory: Path) -> None:
    """Write a copy of ``checkpoint`` in format 1 to a new checkpoint directory, as its only one.

    Its logs must be bases: those of ``collect``, and of aggregates of numbers by one key.
    """
    manifest = store.manifest(checkpoint)
    folder = directory / f"chk-{checkpoint:08d}"
    folder.mkdir(parents=True)
    parts = []
    for task, state in task_states(store, checkpoint).items():
        data = part_of_version_1(*_content(state))
        file = next(part.file for part in manifest.parts if part.task == task and not part.part)
        file = file.removesuffix(".0.part") + ".part"
        (folder / file).write_bytes(data)
        parts.append({"task": task, "file": file, "size": len(data), "xxh3": xxhash.xxh3_64_hexdigest(data)})
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    body = json.dumps({**fields, "format": 1, "parts": parts}, indent=1).encode()
    checksum = xxhash.xxh3_64_hexdigest(body).encode()
    (folder / "manifest.json").write_bytes(b'{"xxh3": "%s",\n"manifest": %s}\n' % (checksum, body))


def part_of_version_1(values: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    """Return the bytes of a part of version 1."""
    streams, sections = b"", []
    for name, table in tables.items():
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        stream = out.getvalue().to_pybytes()
        sections.append({"name": name, "rows": table.num_rows, "offset": len(streams), "length": len(stream)})
        streams += _padded(stream)
    index = json.dumps({"values": values, "tables": sections}).encode()
    return _padded(struct.pack("<8sIIQ", b"BARRIERF", 1, 0, len(index)) + index) + streams


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def _content(state: TaskState) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    tables: dict[str, pa.Table] = {}
    operators: dict[str, Any] = {}
    for name, snapshot in state.operators.items():
        held = {**snapshot.tables}
        for log, bases in snapshot.logs.items():
            (base,) = bases  # type: ignore[misc]
            held.update({"rows": base["rows"]} if log == "rows" else _keys_and_records(base["keys"]))
        operators[name] = {"values": snapshot.values, "tables": list(held)}
        tables.update({f"{name}/{key}": table for key, table in held.items()})
    in_flight = []
    for number, channel in enumerate(state.in_flight):
        elements, kinds = _elements(channel)
        in_flight.append(
            {"operator": channel.operator, "channel": channel.channel, "schema": channel.schema, "elements": elements}
        )
        for kind, batches in enumerate(kinds):
            name = f"/in-flight/{number}" + (f"/{kind}" if kind else "")
            tables[name] = pa.Table.from_batches(batches)
    duplicates = []
    for number, d in enumerate(state.duplicates):
        duplicates.append({"operator": d.operator, "channel": d.channel, "rows": d.rows})
        tables[f"/duplicates/{number}"] = d.table
    values = {
        "task": state.task, "ended": state.ended, "inlet": state.inlet, "operators": operators,
        "duplicates": duplicates, "in_flight": in_flight,
    }  # fmt: skip
    return values, tables


def _keys_and_records(base: pa.Table) -> dict[str, pa.Table]:
    """Return the two tables that format 1 had for the state of an aggregate: row i of both is one key."""
    live = base.filter(pc.field(base.column_names[-1])).drop_columns(base.column_names[-1])
    bare = live.replace_schema_metadata(None)
    return {"keys": bare.select([0]), "records": bare.select(range(1, bare.num_columns))}


def _elements(channel: ChannelState) -> tuple[list[list[Any]], list[list[pa.RecordBatch]]]:
    """Return the elements as lists, and the batches of each schema."""
    elements: list[list[Any]] = []
    kinds: list[list[pa.RecordBatch]] = []
    for element in channel.elements:
        match element:
            case Data(rows=batch):
                assert isinstance(batch, pa.RecordBatch)
                same = [i for i, kind in enumerate(kinds) if kind[0].schema == batch.schema]
                if not same:
                    kinds.append([])
                kind = same[0] if same else len(kinds) - 1
                kinds[kind].append(batch)
                elements.append(["rows", batch.num_rows, *([kind] if kind else [])])
            case Watermark(time=time):
                elements.append(["watermark", time])
            case Idle():
                elements.append(["idle"])
            case EndOfInput():
                elements.append(["end"])
            case _:
                raise AssertionError(f"{element} is no channel state")
    return elements, kinds
