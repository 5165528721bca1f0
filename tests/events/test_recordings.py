"""Recordings: what a run stores, what later runs append, and what is refused or ends one."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest

from dataflow.errors import ConfigurationError, EventsDamaged, EventsError
from dataflow.events import event_file
from dataflow.events.record import Record, refuse_place
from dataflow.views.read_events import read_events
from tests.events.recordings import PLAN, RECORDED, batch, checkpoint, of_job, opened, written

SMALL = 1_000_000


def _work(rows: int, attempt: int = 1) -> pa.RecordBatch:
    return batch([{"task": "sum[1]", "kind": "work", "totals": [1] * 7}] * rows, attempt)


def _attempts(path: Path) -> list[int]:
    return read_events(path).table["attempt"].unique().to_pylist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.arrow"


def test_what_is_recorded_is_read_again(path: Path) -> None:
    written(path, checkpoint())
    events = read_events(path)
    assert events.table.to_pylist() == checkpoint().to_pylist()
    assert (events.recorded, events.missed) == (RECORDED, 0)


def test_events_are_read_while_they_are_written(path: Path) -> None:
    file = opened(path)
    with pytest.raises(EventsError, match="has no events yet; read it again in a second"):
        read_events(path)
    file.write(checkpoint())
    assert len(read_events(path)) == checkpoint().num_rows
    file.close()


def test_anyone_reads_a_recording_as_an_arrow_stream(path: Path) -> None:
    written(path, checkpoint())
    written(path, checkpoint(2))
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        assert len(stream.read_all()) == 2 * checkpoint().num_rows


def test_events_are_in_the_order_of_attempts_and_times(path: Path) -> None:
    late, early = {"task": "sum[1]", "kind": "ended", "time": 9}, {"task": "in[0]", "kind": "ended", "time": 3}
    written(path, batch([late, early]), batch([early], 2))
    assert read_events(path).table.select(["attempt", "time"]).to_pylist() == [
        {"attempt": 1, "time": 3},
        {"attempt": 1, "time": 9},
        {"attempt": 2, "time": 3},
    ]


def test_numbers_that_are_left_out_are_counted_as_missed(path: Path) -> None:
    event = {"task": "sum[1]", "checkpoint": 1, "duration": 1, "kind": "snapshot"}
    part = {**event, "kind": "part"}  # of another writer, with numbers of its own
    written(path, batch([{**event, "seq": 2}, {**event, "seq": 5}, {**part, "seq": 0}, {**part, "seq": 1}]))
    assert read_events(path).missed == 4


# --- runs of the same job, and of others


def test_a_run_of_the_same_job_appends_its_attempt(path: Path) -> None:
    assert [written(path, checkpoint(n)) for n in (1, 2, 3)] == [1, 2, 3]
    assert _attempts(path) == [1, 2, 3]
    assert os.listdir(path.parent) == ["events.arrow"]


def test_a_run_cuts_what_a_killed_one_had_not_finished(path: Path) -> None:
    written(path, checkpoint())
    whole = path.read_bytes()
    for rest in (b"\xff", whole[:40], b"\xff\xff\xff\xff\0\0\0\0"):  # the last one ends a stream
        path.write_bytes(whole + rest)
        assert written(path) == 2  # without an event nothing changes
        assert path.read_bytes() == whole + rest
        assert written(path, checkpoint(2)) == 2
        assert _attempts(path) == [1, 2]
        path.write_bytes(whole)


def test_a_new_job_of_the_pipeline_begins_a_new_file(path: Path) -> None:
    for job in (1, 2, 3):
        assert written(path, checkpoint(), recorded=of_job(job)) == 1
    assert [read_events(each).recorded.job[-1] for each in (path, path.with_suffix(".arrow.1"))] == ["3", "2"]
    assert _attempts(path) == [1]


def test_another_plan_of_the_same_job_begins_a_new_file_and_counts_on(path: Path) -> None:
    written(path, checkpoint())
    wider = of_job(0, msgspec.structs.replace(PLAN, engine="simulated"))
    assert written(path, checkpoint(2), recorded=wider) == 2
    assert _attempts(path) == [1, 2]
    assert read_events(path).plan.engine == "simulated"


def test_at_half_of_the_limit_a_new_file_begins_and_both_are_read(path: Path) -> None:
    rows = 1_000
    written(path, *[_work(rows)] * 8, limit=SMALL)
    older = path.with_suffix(".arrow.1")
    assert older.stat().st_size <= SMALL // 2
    assert path.stat().st_size <= SMALL // 2
    assert len(read_events(path)) == 5 * rows
    assert written(path, limit=SMALL) == 2


def test_the_limit_holds_for_a_batch_that_exceeds_it(path: Path) -> None:
    written(path, _work(20_000), limit=SMALL)
    assert sum(each.stat().st_size for each in path.parent.iterdir()) < 2 * SMALL


def test_a_crash_between_two_files_leaves_the_older_one_to_read(path: Path) -> None:
    written(path, checkpoint())
    path.rename(f"{path}.1")
    assert _attempts(path) == [1]
    path.touch()
    assert _attempts(path) == [1]
    assert written(path, checkpoint(2)) == 2
    assert _attempts(path) == [1, 2]


def test_a_file_that_becomes_the_older_one_while_it_is_opened_is_read_once(path: Path) -> None:
    written(path, checkpoint())
    path.with_suffix(".arrow.1").hardlink_to(path)
    assert len(read_events(path)) == checkpoint().num_rows


@pytest.mark.parametrize("moment", ["_lock", "_is_locked"])
def test_a_file_that_is_replaced_while_it_is_locked_is_opened_again(path: Path, moment: str) -> None:
    written(path, checkpoint())
    original, replaced = getattr(event_file, moment), False

    def replace_first(*arguments: object) -> bool:
        nonlocal replaced
        if replaced:
            return bool(original(*arguments))
        replaced = True
        path.rename(f"{path}.1")  # the job that wrote it began another file, and ended
        path.write_bytes(path.with_suffix(".arrow.1").read_bytes())
        return bool(original(*arguments)) and moment == "_lock"

    with patch.dict(vars(event_file), {moment: replace_first}):
        written(path, checkpoint(2))
    assert replaced
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        assert len(stream.read_all()) == 2 * checkpoint().num_rows


# --- what is refused


def test_two_jobs_on_one_file_are_refused(path: Path) -> None:
    first = opened(path)
    with pytest.raises(EventsError, match="another job writes this recording; wait for it"):
        opened(path)
    first.write(_work(3_000))
    first._half = 0
    first.write(_work(1))  # the file is another one now
    with pytest.raises(EventsError, match="another job writes"):
        opened(path)
    path.unlink()  # as for a moment while a new file begins; then the older one is still locked
    older = os.open(f"{path}.1", os.O_RDONLY)
    fcntl.flock(older, fcntl.LOCK_EX)
    with pytest.raises(EventsError, match="another job writes"):
        opened(path)
    os.close(older)
    first.close()
    opened(path).close()


@pytest.mark.parametrize("suffix", ["", ".1"])
def test_files_that_are_no_recording_of_the_pipeline_are_left_alone(path: Path, suffix: str) -> None:
    place = Path(f"{path}{suffix}")
    foreign = path.with_name("foreign")
    written(foreign, checkpoint(), recorded=of_job(0, pipeline="asks"))
    contents = {
        "is a recording of pipeline 'asks', expected one of 'bids'; move it away": foreign.read_bytes(),
        "it is no Arrow stream": b"important notes",
        "it ends after 4 bytes": b"\xff\xff\xff\xff",
        "its metadata has no pipeline, job": _stream(checkpoint().schema),
        "its columns are not those of events": _stream(pa.schema({"x": pa.int64()}, RECORDED.metadata())),
        "has version '2', and this release reads version 1": _stream(
            checkpoint().schema.with_metadata({**RECORDED.metadata(), "version": "2"})
        ),
    }
    for message, content in contents.items():
        place.write_bytes(content)
        with pytest.raises(EventsError, match=message):
            written(path, checkpoint())
        assert place.read_bytes() == content


def _stream(schema: pa.Schema) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_table(schema.empty_table())
    return out.getvalue().to_pybytes()


def test_a_damaged_recording_is_not_continued(path: Path) -> None:
    written(path, checkpoint())
    content = path.read_bytes() + b"x"
    path.write_bytes(content)
    with pytest.raises(
        EventsDamaged, match=r"record='.*': the recording .* is damaged after byte .*move the file away"
    ):
        written(path, checkpoint())
    assert path.read_bytes() == content


def test_places_where_no_file_can_be_are_refused(path: Path) -> None:
    (path.parent / "directory").mkdir()
    (path.parent / "link").symlink_to(path)
    path.touch()
    (path.parent / "other name").hardlink_to(path)
    os.mkfifo(path.parent / "pipe")
    for name, message in {
        "missing/events.arrow": "No such file or directory; create the directory",
        "directory": "Is a directory; it is a directory; name a file in it",
        "link": "it is a symbolic link, which is not followed",
        "other name": "found other hard links",
        "pipe": "found other hard links or no regular file",
        "events.arrow/x": "a part of the path is a file",
    }.items():
        with pytest.raises(EventsError, match=message):
            opened(path.parent / name)
    with pytest.raises(EventsError, match=r"cannot write it: (Read-only|Permission|No such)"):
        opened(Path("/proc/events.arrow"))  # also root cannot make files there


def test_directories_of_checkpoints_and_sinks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "ckpt")
    (tmp_path / "ckpt").mkdir()
    for inside in ("ckpt/events.arrow", "link/deep/events.arrow", "ckpt"):
        with pytest.raises(ConfigurationError, match="outside of the checkpoint directory"):
            refuse_place(Record(tmp_path / inside), str(tmp_path / "ckpt"), [])
    with pytest.raises(ConfigurationError, match="outside of the output directory of a sink"):
        refuse_place(Record(tmp_path / "out" / "events.arrow"), None, [str(tmp_path / "out")])
    refuse_place(Record(tmp_path / "ckpt.arrow"), str(tmp_path / "ckpt"), [str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": "0.5ms"}, r"every=\) must be from 1ms to 1s, got 500us"),
        ({"every": "2s"}, r"must be from 1ms to 1s, got 2s"),
        ({"every": 10}, "must be a timedelta or text"),
        ({"limit": "1MiB "}, None),
        ({"limit": "999kB"}, "must be at least 1MB, got '999kB'"),
        ({"limit": "lots"}, "must be a size such as"),
        ({"limit": 1e9}, "must be a size such as"),
        ({"limit": True}, "must be a size such as"),
        ({"path": ""}, "must be the path of a file, got ''"),
        ({"path": "a\0b"}, "must be the path of a file"),
        ({"path": b"x"}, "must be the path of a file, Record"),
        ({"path": 7}, "must be the path of a file, Record"),
        ({"path": "s3://bucket/events.arrow"}, "must be a local path"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str | None) -> None:
    if message is None:
        Record(**{"path": "x", **settings})  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigurationError, match=message):
        Record(**{"path": "x", **settings})  # type: ignore[arg-type]


# --- disks that are full


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_recording_with_its_last_whole_batch(path: Path) -> None:
    ended: list[str] = []
    file = opened(path, ended=ended.append)
    file.write(checkpoint())
    size = path.stat().st_size
    with files_of_at_most(size + 100):
        file.write(checkpoint())
        file.write(checkpoint())
    (reason,) = ended
    assert "ended, and the run continued: File too large; raise the limit of file sizes" in reason
    assert path.stat().st_size == size
    assert len(read_events(path)) == checkpoint().num_rows
    assert written(path) == 2


def test_a_disk_that_is_full_at_the_start_loses_nothing(path: Path) -> None:
    for size in (0, 9_136):
        ended: list[str] = []
        with files_of_at_most(100):
            file = opened(path, ended=ended.append)
            file.write(checkpoint())
            file.close()
        assert len(ended) == 1
        assert os.listdir(path.parent) == (["events.arrow"] if size else [])
        assert not size or path.stat().st_size > 1_000
        written(path, checkpoint(), recorded=of_job(1))


# --- what a start that is refused leaves


def test_a_start_without_an_event_changes_no_file(path: Path) -> None:
    written(path, checkpoint(), recorded=of_job(1))
    before = path.read_bytes()
    for job in (2, 3):  # refused by a sink, for example, after the recording was opened
        opened(path, of_job(job)).close()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["events.arrow"]


def test_a_run_in_another_mode_continues_the_file(path: Path) -> None:
    written(path, checkpoint())
    assert written(path, checkpoint(2), recorded=replace(RECORDED, mode="unaligned", guarantee="at least once")) == 2
    assert _attempts(path) == [1, 2]


def test_a_file_of_others_beside_the_recording_is_left_alone(path: Path) -> None:
    mine = path.with_suffix(".arrow.tmp")
    mine.write_text("my data")
    ended: list[str] = []
    file = opened(path, ended=ended.append)
    file.write(_work(3_000))
    path.with_suffix(".arrow.1").write_text("not a recording")  # since the start
    file._half = 0
    file.write(_work(1))
    file.close()
    assert mine.read_text() == "my data"
    assert path.with_suffix(".arrow.1").read_text() == "not a recording"
    assert len(ended) == 1
    assert len(read_events_alone(path)) == 3_000


def read_events_alone(path: Path) -> pa.Table:
    """The rows of the file at ``path`` alone."""
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()
