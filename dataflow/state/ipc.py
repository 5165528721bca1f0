"""Read untrusted Arrow IPC streams so that no kernel gets a value out of bounds.

Arrow itself checks that the metadata of a stream is well-formed, but not that it is true: it trusts offsets into text,
indices into dictionaries and run ends, and a compressed body may expand to any size. So every message is checked before
it is decoded, and every batch is validated in full before it is returned.

Guarantees: memory is proportional to the bytes of the stream. Our writer never compresses, so a body that is
compressed, or whose buffers overlap, or that is smaller than its rows need, is damage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.untrusted.ipc_messages import MALFORMED, check_message

__all__ = ["IpcStream", "check_messages", "messages_field", "messages_schema", "read_stream", "stream_of"]

_SCHEMA: Final = b"barrierflow.messages"
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end of a stream."""
_AT_ONCE: Final = 65_536


def messages_field(name: str, schema: pa.Schema, *, nullable: bool = False) -> pa.Field:
    """Return the field of a column of messages, each of which is one row of ``schema``."""
    return pa.field(name, pa.binary(), nullable, metadata={_SCHEMA: schema.serialize().to_pybytes()})


def messages_schema(field: pa.Field) -> pa.Schema | None:
    """Return the schema of the messages in a column of ``field``; None if it is not one of ``messages_field``.

    Raises: CheckpointDamaged if it cannot be read: a field of a checkpoint may be written by others.

    >>> messages_schema(messages_field("m", pa.schema({"x": pa.int64()}))).names
    ['x']
    """
    if field.metadata is None or _SCHEMA not in field.metadata:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(field.metadata[_SCHEMA]))
        _check_names(schema)
    except (pa.ArrowException, OSError, *MALFORMED) as error:
        raise CheckpointDamaged(f"the schema of column {field.name!r} cannot be read: {str(error)[:500]}") from error
    return schema


def stream_of(messages: pa.Array, schema: pa.Schema) -> pa.Buffer:
    """Return a stream of the rows in ``messages``, none of which is null."""
    return pa.py_buffer(b"".join([schema.serialize(), *messages.to_pylist(), _END]))


def check_messages(column: pa.ChunkedArray, field: pa.Field) -> None:
    """Check a column of a checkpoint, if ``field`` is one of ``messages_field``. Nulls are left out.

    Raises: CheckpointDamaged if a message is not one row of its schema.
    """
    schema = messages_schema(field)
    if schema is None:
        return
    kept = column.drop_null().combine_chunks()
    for start in range(0, len(kept), _AT_ONCE):
        messages = kept.slice(start, _AT_ONCE)
        stream = read_stream(stream_of(messages, schema), f"column {field.name!r}")
        if stream.rows != len(messages) or any(batch.num_rows != 1 for batch in stream.batches):
            raise CheckpointDamaged(f"column {field.name!r}: {len(messages)} rows were stored as {stream.rows}")


@dataclass(frozen=True, slots=True)
class IpcStream:
    """The batches of a stream; ``unbacked`` is the number of rows without bytes: of type null, or without columns."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]
    unbacked: int

    @property
    def rows(self) -> int:
        """The number of rows of all batches."""
        return sum(batch.num_rows for batch in self.batches)


def read_stream(data: pa.Buffer, what: str) -> IpcStream:
    """Return the batches of an IPC stream, as views into ``data``.

    Args:
        data: the bytes of the stream.
        what: the name of the stream, for messages.

    Raises:
        CheckpointDamaged: the stream is incomplete, our writer would not write it, or a value is invalid.

    >>> out = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(out, pa.schema({"x": pa.int64()})) as writer:
    ...     writer.write(pa.record_batch({"x": [1, 2]}))
    >>> read_stream(out.getvalue(), "table 'x'").rows
    2
    """
    try:
        unbacked = _check_messages(data)
        with pa.ipc.open_stream(data) as reader:
            schema = reader.schema
            _check_names(schema)
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, *MALFORMED) as error:
        raise CheckpointDamaged(f"{what} cannot be read: {str(error)[:500]}") from error
    return IpcStream(schema, batches, unbacked)


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Check that all names are text: Arrow keeps bytes, and decodes a name when it is read.

    Raises: UnicodeDecodeError.
    """
    for field in fields:
        inner = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        _ = field.name, getattr(inner, "tz", None)
        _check_names([inner.field(number) for number in range(inner.num_fields)])


def _check_messages(data: pa.Buffer) -> int:
    """Check each message's description of its body; return the number of rows without bytes. Raises: ValueError."""
    return sum(
        check_message(memoryview(message.metadata), 0 if message.body is None else message.body.size)
        for message in pa.ipc.MessageReader.open_stream(data)
    )
