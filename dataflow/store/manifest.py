"""The manifest of a checkpoint, which lists its contents. A checkpoint exists if, and only if, its manifest does.

It is JSON in an envelope with the checksum of its bytes, because a manifest with a flipped digit is still valid JSON.
The envelope never changes; the manifest inside has a format number, and old formats stay readable.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Final

import msgspec
import xxhash

from dataflow.errors import CheckpointDamaged, CheckpointError
from dataflow.untrusted import Count, check_depth, excerpt, parsed, plain_name

__all__ = ["FORMAT", "Manifest", "PartHandle", "check_part", "decode", "encode", "part_file", "part_handle", "part_of"]

FORMAT: Final = 1

_Id = Annotated[int, msgspec.Meta(ge=1, lt=2**62)]


class PartHandle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a checkpoint: the task it belongs to, its size in bytes and its xxh3-64 as 16 hex digits."""

    task: str
    file: str
    size: Count
    xxh3: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a checkpoint, without the state itself.

    ``kind`` is "checkpoint", "savepoint" or "final". ``nodes`` describes the operators (name, kind, parallelism,
    detail, inputs, schema), for comparison with the pipeline that restores it. ``transactions`` has the handles each
    sink must commit. ``created`` is in seconds since 1970. ``summary`` is for people.

    >>> manifest = Manifest(format=FORMAT, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
    ...                     guarantee="exactly once", finished=False, created=0.0, run_id="a")
    >>> decode(encode(manifest), "here") == manifest
    True
    """

    format: int
    checkpoint: _Id
    kind: str
    pipeline: str
    mode: str
    guarantee: str
    finished: bool
    created: float
    run_id: str
    nodes: tuple[dict[str, Any], ...] = ()
    parts: tuple[PartHandle, ...] = ()
    transactions: dict[str, list[dict[str, Any]]] = {}
    summary: dict[str, Any] = {}


class _Envelope(msgspec.Struct, frozen=True):
    xxh3: str
    manifest: msgspec.Raw


class _Header(msgspec.Struct, frozen=True):
    format: int


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of the manifest on disk."""
    assert manifest.format == FORMAT, f"only format {FORMAT} is written, got {manifest.format}"
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return b'{"xxh3": "%s",\n"manifest": %s}\n' % (xxhash.xxh3_64_hexdigest(body).encode(), body)


def decode(data: bytes, where: str) -> Manifest:
    """Return the manifest in ``data``; ``where`` is for messages.

    Raises: CheckpointDamaged if the bytes are not those written; CheckpointError for a newer format.
    """
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        checksum = xxhash.xxh3_64_hexdigest(envelope.manifest)
        if checksum != envelope.xxh3:
            raise CheckpointDamaged(f"{where}: the manifest was written with xxh3 {envelope.xxh3}, found {checksum}")
        newest = msgspec.json.decode(envelope.manifest, type=_Header).format
        if newest > FORMAT:
            raise CheckpointError(
                f"{where}: the manifest has format {newest} and this version reads up to {FORMAT}: "
                "restore it with the version that wrote it, or a later one"
            )
        manifest = msgspec.json.decode(envelope.manifest, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise CheckpointDamaged(
            f"{where}: the manifest is incomplete or damaged, found {len(data)} bytes ({error})"
        ) from error
    _check(manifest, where)
    return manifest


def _check(manifest: Manifest, where: str) -> None:
    """Check rules that the types of the fields cannot express. Raises: CheckpointDamaged."""
    if manifest.format < 1:
        raise CheckpointDamaged(f"{where}: the manifest has format {manifest.format}, expected 1 to {FORMAT}")
    check_depth([manifest.nodes, manifest.transactions, manifest.summary], where)
    parsed(_Summary, manifest.summary, f"{where}: the summary")
    for word in (manifest.kind, manifest.mode, manifest.guarantee):  # shown on terminals
        if not word.isprintable():
            raise CheckpointDamaged(f"{where}: expected printable text in the manifest, found {excerpt(word)}")
    for node in manifest.nodes:
        for key, kind in _NODE.items():
            if key in node and not isinstance(node[key], kind):
                raise CheckpointDamaged(f"{where}: {key!r} of an operator has the wrong type: {excerpt(node[key])}")
        if "name" not in node:
            raise CheckpointDamaged(f"{where}: an operator has no name")
    for part in manifest.parts:
        plain_name(part.file, f"{where}: the part of task {excerpt(part.task)}")
    for what in ("task", "file"):
        (most, times), *_ = [*Counter(getattr(part, what) for part in manifest.parts).most_common(1), ("", 1)]
        if times > 1:
            raise CheckpointDamaged(f"{where}: there are {times} parts of {what} {excerpt(most)}, expected one")


class _Summary(msgspec.Struct):
    """The entries of a summary that are shown to users."""

    in_flight_rows: Count | None = None
    in_flight_bytes: Count | None = None
    duplicated: dict[str, Count] = {}


_NODE: Final = {"name": str, "kind": str, "parallelism": int, "stateful": bool, "keys": bool | list}
"""Fields of an operator that are read, if they are there."""


def part_handle(task: str, data: bytes | bytearray | memoryview, token: int = 0) -> PartHandle:
    """Return the handle of a part; ``token`` is the fencing token of its writer, or 0 if there is only one writer."""
    return PartHandle(task, part_file(task, token), memoryview(data).nbytes, xxhash.xxh3_64_hexdigest(data))


def part_file(task: str, token: int = 0) -> str:
    """Return the file name of the part of ``task``: valid on every file system, also a case-insensitive one.

    >>> part_file("counts-0"), part_file("counts[0]", 12)
    ('counts-0.part', 'counts-0-ea55e9fb16c91206.12.part')
    """
    plain = re.sub(r"[^a-z0-9_.\-]+", "-", task.lower())[:80].strip("-.")
    stem = task if plain == task else f"{plain}-{xxhash.xxh3_64_hexdigest(task.encode())}"
    return f"{stem}.{token}.part" if token else f"{stem}.part"


def part_of(name: str, task: str) -> bool:
    """Return whether ``name`` is the file name of a part of ``task``, by any writer.

    >>> part_of("counts-0.12.part", "counts-0"), part_of("counts-0.part.tmp", "counts-0")
    (True, False)
    """
    stem = re.escape(part_file(task).removesuffix(".part"))
    return re.fullmatch(rf"{stem}(\.\d+)?\.part", name) is not None


def check_part(handle: PartHandle, data: bytes, where: str) -> bytes:
    """Return ``data``. Raises: CheckpointDamaged if its size or checksum differs from the handle's."""
    if len(data) != handle.size:
        raise CheckpointDamaged(
            f"{where}: the part of task {handle.task!r} had {handle.size} bytes when it was written, found {len(data)}"
        )
    checksum = xxhash.xxh3_64_hexdigest(data)
    if checksum != handle.xxh3:
        raise CheckpointDamaged(
            f"{where}: the part of task {handle.task!r} was written with xxh3 {handle.xxh3}, found {checksum}"
        )
    return data
