"""The buffers of events: their bounds, what they count as lost, and what a drain takes."""

from __future__ import annotations

import threading

from dataflow.events.event_log import EventLog
from dataflow.events.event_rows import Event, Origin
from dataflow.events.kinds import Kind
from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from dataflow.events.recorded import Cursor, RecordedJob
from dataflow.events.recorder import UNRECORDED, EventWriter, Recorder, Weight

PLAN = PlanShape("local", vertices=(VertexShape("a", 1, ("a",)), VertexShape("b", 2, ("b", "out"))),
                 links=(LinkShape("a", "b", "a", "hash"),))  # fmt: skip
RECORDED = RecordedJob("p", "0" * 32, "aligned", "exactly once", PLAN)


def started(log: EventLog | None = None, **options: int) -> Recorder:
    recorder = Recorder(log, **options)
    recorder.open(RECORDED)
    recorder.begin(1_000)
    return recorder


def fact(n: int, kind: Kind = Kind.SNAPSHOT) -> Event:
    return Event(kind, 1_000 + n, n, "a[0]", n, None, None, None, None, None, None, None, None)


def sample(n: int) -> Event:
    return Event(Kind.WORK, 1_000 + n, n, "a[0]", None, None, None, None, None, None, None, (1, 2, 3, 4, 5, 6), None)


def test_an_event_has_the_time_since_the_start_and_the_names_of_the_plan() -> None:
    recorder = started()
    recorder.writer("b[1]").record(Kind.ARRIVED, 1_017, 3, channel="a[0] -> b[1]", rows=5, bytes=40, detail="in order")
    recorder.drain()
    table, missed, _ = recorder.log.read()
    (row,) = table.to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "time": 17,
        "seq": 0,
        "attempt": 1,
        "checkpoint": 3,
        "rows": 5,
        "bytes": 40,
        "task": "b[1]",
        "channel": "a[0] -> b[1]",
        "kind": "arrived",
        "detail": "in order",
    }
    assert missed == 0


def test_a_full_buffer_drops_the_oldest_and_counts_it() -> None:
    writer = EventWriter("a[0]")
    writer.set_room(facts=2, samples=1)
    for n in range(5):
        writer.record(Kind.SNAPSHOT, n, n)
        writer.sample(Kind.WORK, n, totals=(n,))
    facts, samples = writer.take()
    assert [event.checkpoint for event in facts] == [3, 4]
    assert [event.totals for event in samples] == [(4,)]
    assert (writer.lost_facts, writer.lost_samples) == (3, 4)


def test_samples_and_other_events_of_a_writer_share_their_numbers() -> None:
    writer = EventWriter("a[0]")
    writer.record(Kind.SNAPSHOT, 1, 1)
    writer.sample(Kind.WORK, 2, totals=())
    writer.record(Kind.COMPLETE, 3, 1)
    facts, samples = writer.take()
    assert [event.seq for event in (*facts, *samples)] == [0, 2, 1]


def test_what_buffers_lost_is_missed() -> None:
    recorder = started()
    writer = recorder.writer("a[0]")
    writer.set_room(facts=1, samples=1)
    for n in range(3):
        writer.record(Kind.SNAPSHOT, 1_000 + n, n)
    recorder.drain()
    assert recorder.log.read()[1] == 2


def test_the_room_is_shared_by_what_writers_record_in_a_checkpoint() -> None:
    recorder = Recorder()
    writers = [recorder.writer(f"b[{n}]", Weight(facts=4 if n else 40, samples=2)) for n in range(400)]
    recorder.open(RECORDED)
    recorder.begin(0)
    for writer in writers:
        for n in range(100):
            writer.record(Kind.SNAPSHOT, n, n)
            writer.sample(Kind.WORK, n, totals=())
    kept = [tuple(map(len, writer.take())) for writer in writers]
    assert kept[0][0] > kept[1][0] == 64
    assert sum(facts for facts, _ in kept) <= 28_000
    assert sum(samples for _, samples in kept) <= 15_000


def test_a_drain_beside_a_writer_loses_nothing_and_keeps_the_order() -> None:
    writer = EventWriter("a[0]")
    done = threading.Event()

    def write() -> None:
        for n in range(30_000):
            writer.record(Kind.SNAPSHOT, n, n)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    taken: list[Event] = []
    while not done.is_set():
        taken += writer.take()[0]
    thread.join()
    taken += writer.take()[0]
    assert len(taken) + writer.lost_facts == 30_000
    assert [event.seq for event in taken] == sorted({event.seq for event in taken})


def test_a_writer_outside_of_a_job_records_nothing() -> None:
    UNRECORDED.record(Kind.SNAPSHOT, 1, 1)
    UNRECORDED.sample(Kind.WORK, 1, totals=())
    assert UNRECORDED.take() == ([], [])


def full_log(limit: int, samples: int, checkpoints: int) -> EventLog:
    """A log of checkpoints with 100 events each, among samples, converted after 50 events."""
    log = EventLog(limit, converted_at=50)
    log.begin(RECORDED, Origin(PLAN, 1_000, 1))
    for n in range(checkpoints):
        log.add([fact(n, Kind.TRIGGERED), *[fact(n)] * 99], [sample(n) for _ in range(samples)], 0, 0)
    return log


def test_samples_are_dropped_first() -> None:
    table, missed, _ = full_log(limit=200_000, samples=300, checkpoints=9).read()
    kinds = table["kind"].to_pylist()
    assert kinds.count("snapshot") == 9 * 99
    assert missed == 2_700 - kinds.count("work") > 0


def test_then_the_oldest_checkpoints_and_never_the_last() -> None:
    table, missed, _ = full_log(limit=30_000, samples=10, checkpoints=20).read()
    kept = sorted(
        {
            n
            for n, kind in zip(table["checkpoint"].to_pylist(), table["kind"].to_pylist(), strict=True)
            if kind == "snapshot"
        }
    )
    assert kept == list(range(kept[0], 20))
    assert 0 < kept[0] < 19
    assert missed > 0


def test_the_last_checkpoint_stays_even_if_it_is_larger_than_the_room() -> None:
    log = full_log(limit=1_000, samples=10, checkpoints=3)
    checkpoints = log.read()[0]["checkpoint"].to_pylist()
    assert checkpoints.count(2) == 100
    assert 0 not in checkpoints


def test_what_happened_to_the_job_is_never_dropped() -> None:
    log = EventLog(1_000, converted_at=10)
    log.begin(RECORDED, Origin(PLAN, 1_000, 1))
    log.add([fact(0, Kind.STARTED), fact(0, Kind.STATE)], [], 0, 0)
    for n in range(1, 30):
        log.add([fact(n, Kind.TRIGGERED), *[fact(n)] * 30], [], 0, 0)
    kinds = log.read()[0]["kind"].to_pylist()
    assert (kinds.count("started"), kinds.count("state")) == (1, 1)


def test_a_reader_gets_what_came_since_and_how_much_it_missed() -> None:
    log = full_log(limit=30_000, samples=0, checkpoints=2)
    _, missed, cursor = log.read()
    assert missed == 0
    assert log.read(cursor)[0].num_rows == 0
    log.add([fact(2, Kind.TRIGGERED), fact(2)], [sample(2)], 0, 0)
    table, missed, cursor = log.read(cursor)
    assert (table["checkpoint"].to_pylist(), missed) == ([2, 2, None], 0)
    for n in range(3, 20):
        log.add([fact(n, Kind.TRIGGERED), *[fact(n)] * 99], [], 0, 0)
    table, missed, _ = log.read(cursor)
    assert table.num_rows + missed == 17 * 100


def test_positions_are_of_one_log() -> None:
    log, other = full_log(1_000, 1, 1), full_log(1_000, 1, 1)
    assert log.has(log.read()[2])
    assert not log.has(other.read()[2])
    assert not log.has(Cursor("", 0, 0))


def test_attempts_of_one_log_are_numbered() -> None:
    log = EventLog()
    for _ in range(2):
        recorder = started(log)
        recorder.job.record(Kind.STARTED, 1_000, value=7)
        recorder.close()
    assert log.read()[0]["attempt"].to_pylist() == [1, 2]


def time_of(n: int, operator: str | None = None) -> Event:
    """A watermark, among samples."""
    return sample(n)._replace(kind=Kind.WATERMARK, value=n, operator=operator, totals=None)


def test_the_events_of_one_checkpoint_are_kept_however_many_there_are() -> None:
    writer = EventWriter("a[0]")
    writer.set_room(facts=2, samples=1)
    for checkpoint in (1, 2):
        for n in range(5):
            writer.record(Kind.SENT, n, checkpoint)
    facts, _ = writer.take()
    assert [event.checkpoint for event in facts] == [2] * 5
    assert writer.lost_facts == 5


def test_the_last_watermark_outlives_later_samples_in_a_full_buffer() -> None:
    writer = EventWriter("a[0]")
    writer.set_room(facts=1, samples=2)
    for value in (7, 8):
        writer.sample(Kind.WATERMARK, value, value=value)
    for n in range(9, 14):
        writer.sample(Kind.WORK, n, totals=())
    _, samples = writer.take()
    assert [event.value or event.time for event in samples] == [8, 12, 13]
    assert writer.lost_samples - writer.found_samples == 4


def test_the_last_watermark_of_each_operator_outlives_all_samples_of_the_log() -> None:
    log = EventLog(limit=10_000, converted_at=50)
    log.begin(RECORDED, Origin(PLAN, 1_000, 1))
    log.add([], [time_of(1), time_of(2), time_of(3, "b")], 0, 0)
    for _ in range(40):
        log.add([], [sample(9)] * 60, 0, 0)
    table, missed, cursor = log.read()
    assert [(row["value"], row["operator"]) for row in table.to_pylist() if row["kind"] == "watermark"] == [
        (2, None),
        (3, "b"),
    ]
    assert table.num_rows + missed == 40 * 60 + 3
    assert log.read(cursor)[0].num_rows == 0


def test_reading_often_converts_nothing_for_good() -> None:
    log = EventLog()
    log.begin(RECORDED, Origin(PLAN, 1_000, 1))
    cursor = None
    for n in range(200):
        log.add([fact(n)], [sample(n)], 0, 0)
        table, missed, cursor = log.read(cursor)
        assert (table.num_rows, missed) == (2, 0)
    assert not log.has_converted
    assert log.read()[0].num_rows == 400
