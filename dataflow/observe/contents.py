"""Show what one stored checkpoint holds: facts, objects, operators, and what a restore would report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dataflow.clock import duration_text
from dataflow.contracts.execution import Execution
from dataflow.contracts.operator import Snapshot
from dataflow.drawing import printable
from dataflow.errors import CheckpointError
from dataflow.observe.checkpoints import line_of, store_in
from dataflow.observe.verification import to_json as status_json
from dataflow.planning.physical_plan import vertex_of
from dataflow.runtime.checkpoint_reader.channels import StoredChannels
from dataflow.runtime.checkpoint_reader.state import state_tables
from dataflow.runtime.restore.find_checkpoint import report_on, states_of
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.parts import TaskState
from dataflow.store.manifest import Manifest
from dataflow.store.status import CheckpointContents, CheckpointStatus, verified
from dataflow.untrusted import damaged_by

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "CheckpointSheet",
    "OperatorLine",
    "blocked_table",
    "facts_table",
    "operators_table",
    "pieces_table",
    "read_sheet",
]

_CHANNELS: Final = 20
"""Channels that are printed."""


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """One operator of a checkpoint.

    Attributes:
        name: the name of the operator.
        kind: what it does, such as "aggregate".
        parallelism: the number of its subtasks.
        tables: the rows of each table of its state, as `Checkpoint.state` returns them.
        pieces: the `Rule` of each piece of its state, as text; of several subtasks those of the first. Empty if the
            operator saves its state by hand.
        in_flight_rows: rows that a restore puts back in front of it.
        duplicated: rows that a restore delivers to it a second time.
    """

    name: str
    kind: str
    parallelism: int
    tables: Mapping[str, int]
    pieces: Mapping[str, str]
    in_flight_rows: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class CheckpointSheet:
    """One checkpoint. Unless it is whole and readable, it has no ``operators`` and no ``report``, but a ``reason``."""

    found: CheckpointContents
    reason: str | None
    operators: tuple[OperatorLine, ...] = ()
    report: RestoreReport | None = None

    @property
    def blocked(self) -> Mapping[str, int] | None:
        """Microseconds that its barriers blocked each channel, the longest first; None: the manifest does not say."""
        manifest = self.found.manifest
        blocked = None if manifest is None else manifest.summary.get("blocked_in_checkpoint_us")
        return None if blocked is None else dict(sorted(blocked.items(), key=lambda entry: -entry[1]))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        manifest = self.found.manifest
        more = {} if manifest is None else {"format": manifest.format, "run_id": manifest.run_id}
        operators = [
            {
                "name": line.name,
                "kind": line.kind,
                "parallelism": line.parallelism,
                "tables": dict(line.tables),
                "pieces": dict(line.pieces),
                "in_flight_rows": line.in_flight_rows,
                "duplicated": line.duplicated,
            }
            for line in self.operators
        ]
        return {
            **line_of(self.found).to_json(),
            **more,
            "reason": self.reason,
            "blocked_us": None if self.blocked is None else dict(self.blocked),
            "objects": status_json(self.found)["objects"],
            "operators": operators,
            "restore": None if self.report is None else self.report.to_json(),
        }


def read_sheet(directory: Path, checkpoint: int) -> CheckpointSheet:
    """Read a checkpoint, which is pinned meanwhile.

    Args:
        directory: the location of a ``Checkpointing``.
        checkpoint: the id of the checkpoint.

    Raises: NoCheckpoint if there is no such directory or checkpoint; StoreError.

    >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
    >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
    >>> with tempfile.TemporaryDirectory() as path:
    ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
    ...     [(line.name, line.tables) for line in read_sheet(Path(path), 1).operators]
    [('numbers', {'splits': 1}), ('collected', {'rows': 2})]
    """
    store = store_in(directory)
    with store.folder(checkpoint).pin():
        found = verified(store, checkpoint)
        manifest = found.manifest
        if manifest is None or found.status is not CheckpointStatus.WHOLE:
            return CheckpointSheet(found, found.reason)
        try:
            states = states_of(manifest, lambda part: store.read(checkpoint, part))
            report = report_on(store, manifest, states)
            return CheckpointSheet(found, None, _operators(manifest, states, report), report)
        except CheckpointError as error:
            return CheckpointSheet(found, str(error))


def _operators(manifest: Manifest, states: Mapping[str, TaskState], report: RestoreReport) -> tuple[OperatorLine, ...]:
    channels = StoredChannels(manifest)
    flying: dict[str, int] = {}
    for channel in report.in_flight:
        flying[channel.operator] = flying.get(channel.operator, 0) + channel.rows
    lines = []
    with damaged_by(f"checkpoint {manifest.checkpoint}"):
        for node in manifest.nodes:
            name = node["name"]
            own = {task: state for task, state in states.items() if vertex_of(task) == channels.vertex(name)}
            tables = state_tables(name, own, manifest.transactions.get(name, ()))
            rows = {table: content.num_rows for table, content in tables.items()}
            stored = next((state.operators[name] for state in own.values() if name in state.operators), Snapshot())
            pieces = {piece: str(rule) for piece, rule in stored.rules.items()}
            what = name, node["kind"], node["parallelism"]
            lines.append(OperatorLine(*what, rows, pieces, flying.get(name, 0), report.duplicated(name)))
    return tuple(lines)


def facts_table(sheet: CheckpointSheet) -> Table:
    """Return a table with one row per fact of the manifest."""
    from rich.text import Text

    line, manifest = line_of(sheet.found), sheet.found.manifest
    facts: dict[str, object] = {"status": line.status if sheet.reason is None else f"{line.status}: {sheet.reason}"}
    if sheet.reason is not None and line.status is CheckpointStatus.WHOLE:
        facts["status"] = f"{CheckpointStatus.DAMAGED}: {sheet.reason}"
    if manifest is not None:
        facts |= {
            "kind": manifest.kind,
            "pipeline": manifest.pipeline,
            "mode": manifest.mode,
            "guarantee, end to end": manifest.guarantee,
            "created": _time(manifest.created),
            "run": manifest.run_id,
            "job": manifest.job,
            "finished": "yes" if manifest.finished else "no",
            "format": manifest.format,
            "tasks": line.tasks,
        }
        if (parent := manifest.parent) is not None:
            facts["began from"] = f"checkpoint {parent.checkpoint} of job {parent.job}"
        if manifest.repeated:
            facts["rows that came twice"] = "yes, after an earlier restore, so the state is at least once"
        if sheet.blocked == {}:
            facts["blocked"] = "no channel"
        elif sheet.blocked is None and "blocked_us" in manifest.summary:
            facts["blocked"] = "not known: its manifest has only sums since the start of the run"
        if manifest.execution != Execution.STREAMING.value:
            facts["execution"] = f"{manifest.execution}: what its sinks must commit, and no state"
    if line.bytes is not None:
        facts["bytes"] = f"{line.bytes:,}"
    result = _table("fact", "value")
    for name, value in facts.items():
        result.add_row(Text(name), Text(printable(str(value))))
    return result


def blocked_table(sheet: CheckpointSheet) -> Table:
    """Return a table with one row per channel that the barriers of the checkpoint blocked; long lists are cut."""
    from rich.text import Text

    result = _table("channel", "blocked")
    longest_first = list((sheet.blocked or {}).items())
    for channel, time in longest_first[:_CHANNELS]:
        result.add_row(Text(printable(channel)), Text(duration_text(time)))
    if len(longest_first) > _CHANNELS:
        result.add_row(Text(f"... and {len(longest_first) - _CHANNELS:,} more"), Text(""))
    return result


def operators_table(sheet: CheckpointSheet) -> Table:
    """Return a table with one row per operator."""
    from rich.text import Text

    result = _table("operator", "kind", "subtasks", "rows of state", "in-flight rows", "repeated deliveries")
    for line in sheet.operators:
        state = ", ".join(f"{table}: {rows:,}" for table, rows in line.tables.items()) or "none"
        cells = (line.name, line.kind, f"{line.parallelism}", state, f"{line.in_flight_rows:,}", f"{line.duplicated:,}")
        result.add_row(*[Text(printable(cell)) for cell in cells])
    return result


def pieces_table(sheet: CheckpointSheet) -> Table:
    """Return a table with one row per piece of state that an operator declares."""
    from rich.text import Text

    result = _table("operator", "piece of state", "rule")
    for line in sheet.operators:
        for piece, rule in line.pieces.items():
            result.add_row(*[Text(printable(cell)) for cell in (line.name, piece, rule)])
    return result


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        right = heading in ("blocked", "subtasks", "in-flight rows", "repeated deliveries")
        result.add_column(heading, justify="right" if right else "left", overflow="fold")
    return result


def _time(seconds: float) -> str:
    """Return a time as text, in UTC; as seconds if it is beyond what a calendar has.

    >>> _time(0), _time(1e300)
    ('1970-01-01 00:00:00 UTC', '1e+300 s')
    """
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"
