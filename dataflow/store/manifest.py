"""The manifest of a checkpoint, which lists its contents. A checkpoint exists if, and only if, its manifest does.

It is JSON in an envelope with the checksum of its bytes, because a manifest with a flipped digit is still valid JSON.
The envelope never changes; the manifest inside has a format number. Each manifest has all fields but those that are new
since the first version of the format: these are written only if they are not empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
import xxhash

from dataflow.errors import CheckpointDamaged, CheckpointError
from dataflow.store.files import Buffer, Content, pieces_of
from dataflow.untrusted import Count, check_depth, excerpt, parsed, plain_name

__all__ = [
    "FORMAT",
    "LATER_FIELDS",
    "LOG",
    "STATE",
    "Checked",
    "EarlierTarget",
    "JobId",
    "Manifest",
    "Parent",
    "PartHandle",
    "check_part",
    "check_sums",
    "decode",
    "encode",
    "is_state_of",
    "part_file",
]

FORMAT: Final = 1

STATE: Final = 0
"""The part of a task with the state that every checkpoint holds whole."""
LOG: Final = 1
"""The part of a task with the rows of its incremental state: a base, or a delta."""

_Id = Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
JobId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The id of a job: a UUID, as 32 hex digits."""
_Moment = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]


class PartHandle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One object (file) of a checkpoint: the task it belongs to, its size in bytes, its xxh3-64 as 16 hex digits.

    ``part`` is ``STATE`` or ``LOG``. ``checkpoint`` is the older checkpoint that wrote the object, and whose folder
    holds it; 0: the checkpoint of the manifest. ``copied``: the object was copied into the folder of the manifest, so
    that it needs no other folder.
    """

    task: str
    file: str
    size: Count
    xxh3: str
    part: Annotated[int, msgspec.Meta(ge=STATE, le=LOG)] = STATE
    checkpoint: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = 0
    copied: bool = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether the folder of an older checkpoint holds the object."""
        return self.checkpoint > 0 and not self.copied


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint of one job that another job began from, in a directory of its own.

    Attributes:
        job: the id of the job that took the checkpoint.
        checkpoint: the number of the checkpoint.

    >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("copy") as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
    >>> with tempfile.TemporaryDirectory() as path:
    ...     first = p.run(checkpoint=flow.Checkpointing(f"{path}/first"))
    ...     moved = p.run(checkpoint=flow.Checkpointing(f"{path}/second"), restore=f"{path}/first/chk-00000001")
    ...     checkpoint = flow.Checkpoint(f"{path}/second", 2)
    >>> checkpoint.job_id == moved.job_id, checkpoint.parent == flow.Parent(first.job_id, 1)
    (True, True)
    """

    job: JobId
    checkpoint: _Id


class EarlierTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target that a sink has left: it holds the sink's rows up to ``checkpoint``, since the target before it.

    ``target`` is what `Sink.target` was.

    >>> str(EarlierTarget("/data/out", 7))
    'up to checkpoint 7 in /data/out'
    """

    target: str
    checkpoint: _Id

    def __str__(self) -> str:
        return f"up to checkpoint {self.checkpoint} in {self.target}"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a checkpoint, without the state itself.

    ``kind`` is "checkpoint", "savepoint" or "final". ``nodes`` describes the operators (name, kind, parallelism,
    detail, inputs, schema), for comparison with the pipeline that restores it. ``transactions`` has the handles each
    sink must commit. ``created`` is in seconds since 1970, by the wall clock. ``time`` is time by the clock after all
    snapshots, in microseconds since 1970. ``summary`` is for people. ``parts`` names every
    object that a restore reads, older ones included: of each task its state, then its log, base first. ``execution`` is
    that of the job: of a "batch" there is one checkpoint, with what its sinks must commit and no state. ``repeated``:
    rows may have come twice to the operators, because a restore before this checkpoint reported rows that were
    delivered again. ``job`` is the same in all checkpoints of a directory or store. ``parent`` is where this job began,
    if it restored a checkpoint of another directory; None: at the beginning of its input. ``targets`` has the target of
    each two-phase sink that has one; if a sink is not in it, its target is unknown. ``earlier_targets`` has those that
    the sinks wrote to before, oldest first.

    >>> manifest = Manifest(format=FORMAT, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
    ...                     guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32)
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
    job: JobId
    parent: Parent | None = None
    nodes: tuple[dict[str, Any], ...] = ()
    parts: tuple[PartHandle, ...] = ()
    transactions: dict[str, list[dict[str, Any]]] = {}
    summary: dict[str, Any] = {}
    execution: str = "streaming"
    repeated: bool = False
    time: _Moment = 0
    targets: dict[str, str] = {}
    earlier_targets: dict[str, tuple[EarlierTarget, ...]] = {}


LATER_FIELDS: Final = ("targets", "earlier_targets")
"""Fields that older manifests of this format lack. They are left out if they are empty."""


class _Envelope(msgspec.Struct, frozen=True):
    xxh3: str
    manifest: msgspec.Raw


class _Header(msgspec.Struct, frozen=True):
    format: int


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of the manifest on disk."""
    assert manifest.format == FORMAT, f"expected format {FORMAT}, got {manifest.format}"
    fields = {
        name: value for name, value in msgspec.structs.asdict(manifest).items() if value or name not in LATER_FIELDS
    }
    body = msgspec.json.format(msgspec.json.encode(fields), indent=1)
    return b'{"xxh3": "%s",\n"manifest": %s}\n' % (xxhash.xxh3_64_hexdigest(body).encode(), body)


def decode(data: bytes, where: str) -> Manifest:
    """Return the manifest in ``data``; ``where`` is for messages.

    Raises: CheckpointDamaged if the bytes are not those written, or a field is missing; CheckpointError for a newer
        format.
    """
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        checksum = xxhash.xxh3_64_hexdigest(envelope.manifest)
        if checksum != envelope.xxh3:
            raise CheckpointDamaged(f"{where}: the manifest was written with xxh3 {envelope.xxh3}, found {checksum}")
        format_ = msgspec.json.decode(envelope.manifest, type=_Header).format
        if format_ > FORMAT:
            raise CheckpointError(
                f"{where}: the manifest has format {format_} and this version reads {FORMAT}: "
                "restore it with the version that wrote it, or a later one"
            )
        fields = msgspec.json.decode(envelope.manifest, type=dict[str, msgspec.Raw])
        if missing := [
            field for field in Manifest.__struct_fields__ if field not in fields and field not in LATER_FIELDS
        ]:
            raise CheckpointDamaged(f"{where}: the manifest lacks {', '.join(missing)}")
        manifest = msgspec.json.decode(envelope.manifest, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise CheckpointDamaged(
            f"{where}: the manifest is incomplete or damaged, found {len(data)} bytes ({error})"
        ) from error
    _check(manifest, where)
    return manifest


def _check(manifest: Manifest, where: str) -> None:
    """Check rules that the types of the fields cannot express. Raises: CheckpointDamaged."""
    if manifest.format != FORMAT:
        raise CheckpointDamaged(f"{where}: the manifest has format {manifest.format}, expected {FORMAT}")
    check_depth([manifest.nodes, manifest.transactions, manifest.summary], where)
    parsed(_Summary, manifest.summary, f"{where}: the summary")
    for word in (manifest.kind, manifest.mode, manifest.guarantee, manifest.execution):  # shown on terminals
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
    _check_objects(manifest, where)


def _check_objects(manifest: Manifest, where: str) -> None:
    """Check that each task has one state, and at most one log in ascending order. Raises: CheckpointDamaged."""
    states = Counter(part.task for part in manifest.parts if part.part == STATE)
    files = Counter((part.checkpoint, part.file) for part in manifest.parts)
    for task, times in states.most_common(1):
        if times > 1:
            raise CheckpointDamaged(f"{where}: there are {times} parts of task {excerpt(task)}, expected one")
    for (_, file), times in files.most_common(1):
        if times > 1:
            raise CheckpointDamaged(f"{where}: there are {times} parts of file {excerpt(file)}, expected one")
    last: dict[str, int] = {}
    for part in manifest.parts:
        if part.checkpoint >= manifest.checkpoint or (part.checkpoint and part.part == STATE):
            raise CheckpointDamaged(
                f"{where}: the part of task {excerpt(part.task)} is of checkpoint {part.checkpoint}, expected an "
                "older one, and only for the log of a task"
            )
        if part.part == LOG:
            written = part.checkpoint or manifest.checkpoint
            if part.task not in states or written <= last.get(part.task, 0):
                raise CheckpointDamaged(
                    f"{where}: the log of task {excerpt(part.task)} is not of a task, or not in order"
                )
            last[part.task] = written


class _Summary(msgspec.Struct):
    """The entries of a summary that are shown to users."""

    in_flight_rows: Count | None = None
    in_flight_bytes: Count | None = None
    duplicated: dict[str, Count] = {}
    blocked_in_checkpoint_us: dict[str, Count] = {}


_NODE: Final = {"name": str, "kind": str, "parallelism": int, "stateful": bool, "keys": bool | list}
"""Fields of an operator that are read, if they are there."""


class Checked:
    """The content of an object, which counts its bytes and adds up their checksum while it is read, once.

    >>> content = Checked([b"st", b"ate"])
    >>> b"".join(content), content.handle("counts-0", 12).file
    (b'state', 'counts-0.12.0.part')
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        self._size = 0
        self._checksum = xxhash.xxh3_64()

    def __iter__(self) -> Iterator[Buffer]:
        for piece in pieces_of(self._content):
            self._checksum.update(piece)
            self._size += memoryview(piece).nbytes
            yield piece

    def handle(self, task: str, token: int = 0, part: int = STATE) -> PartHandle:
        """Return the handle of the bytes read so far; ``token`` is the fencing token of the writer, 0: it has none."""
        return PartHandle(task, part_file(task, token, part), self._size, self._checksum.hexdigest(), part)


def part_file(task: str, token: int = 0, part: int = STATE) -> str:
    """Return the file name of a part of ``task``: valid on every file system, also a case-insensitive one.

    >>> part_file("counts-0"), part_file("counts[0]", 12, LOG)
    ('counts-0.0.0.part', 'counts-0-ea55e9fb16c91206.12.1.part')
    """
    return f"{_stem(task)}.{token}.{part}.part"


def _stem(task: str) -> str:
    plain = re.sub(r"[^a-z0-9_.\-]+", "-", task.lower())[:80].strip("-.")
    return task if plain == task else f"{plain}-{xxhash.xxh3_64_hexdigest(task.encode())}"


def is_state_of(name: str, task: str) -> bool:
    """Return whether ``name`` is the file name of the state of ``task``, by any writer.

    >>> [is_state_of(f"counts-0.{rest}", "counts-0") for rest in ("12.0.part", "12.1.part", "12.0.part.tmp")]
    [True, False, False]
    """
    return re.fullmatch(rf"{re.escape(_stem(task))}\.\d+\.{STATE}\.part", name) is not None


def check_part(handle: PartHandle, data: bytes, where: str) -> bytes:
    """Return ``data``. Raises: CheckpointDamaged if its size or checksum differs from the handle's."""
    check_sums(handle, len(data), xxhash.xxh3_64_hexdigest(data), where)
    return data


def check_sums(handle: PartHandle, size: int, checksum: str, where: str) -> None:
    """Raise CheckpointDamaged if the size or the checksum of bytes that were read differs from the handle's."""
    if size != handle.size:
        raise CheckpointDamaged(
            f"{where}: the part of task {handle.task!r} had {handle.size} bytes when it was written, found {size}"
        )
    if checksum != handle.xxh3:
        raise CheckpointDamaged(
            f"{where}: the part of task {handle.task!r} was written with xxh3 {handle.xxh3}, found {checksum}"
        )
