"""Arrow streams that our writer never writes: they would take far more memory than the bytes they have."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged
from dataflow.state.codec import decode, encode
from dataflow.state.ipc import read_stream


def test_a_dictionary_that_grows_from_batch_to_batch_is_damage() -> None:
    out = pa.BufferOutputStream()
    batches = [pa.record_batch({"d": pa.array(text).dictionary_encode()}) for text in (["a"], ["a", "b"])]
    with pa.ipc.new_stream(
        out, batches[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with pytest.raises(CheckpointDamaged, match="the stream has a delta dictionary"):
        read_stream(out.getvalue(), "table")


def test_values_of_lists_that_take_no_bytes_are_counted() -> None:
    lists = pa.ListArray.from_arrays(pa.array(np.array([0, 2**30], np.int32)), pa.nulls(2**30))
    with pytest.raises(CheckpointDamaged, match=r"rows that take no bytes \(up to table 'lists'\)"):
        decode(encode({}, {"lists": pa.table({"n": lists})}))


def test_tables_that_share_their_bytes_are_damage() -> None:
    part = encode({}, {"a": pa.table({"x": range(1_000)})}).to_pybytes()
    length = int.from_bytes(part[-16:-8], "little")
    header = json.loads(part[-16 - length : -16])
    header["tables"] *= 2
    header["tables"][1] = {**header["tables"][0], "name": "b"}
    text = json.dumps(header).encode()
    with pytest.raises(CheckpointDamaged, match="the tables of the part overlap"):
        decode(part[: -16 - length] + text + len(text).to_bytes(8, "little") + part[-8:])
