"""Figures of sentences and of tables, counted again from the table of events of seeded runs in all modes.

The counting here is plain loops over the rows of the table; nothing of ``dataflow.views`` is used for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.views.blocked_channels import blocked_channels
from dataflow.views.checkpoint_table import slowest
from dataflow.views.choose_checkpoint import choose
from dataflow.views.events import Events
from dataflow.views.find_facts import facts_of
from dataflow.views.sentence import Sentence
from dataflow.views.sentences import sentences_of
from tests.seeds import some_by_default
from tests.simulation.jobs import MODES
from tests.simulation.workloads import Dawdler

Row = Mapping[str, Any]

MORE = [(mode, seed) for mode in MODES for seed in range(1, 4)]
QUEUE = re.compile(r"spent .* in (\S+ -> \S+?),")


@cache
def skewed_join(mode: str, seed: int) -> Events:
    """Orders that are joined with payments, which pass a slow step; with slow writers, failing ones and a crash."""
    orders, payments = ({"id": [n % 20 for n in range(rows)], "n": list(range(rows))} for rows in (200, 45))
    with flow.Pipeline("orders-payments") as p:
        slow = p.source(op.from_arrow(pa.table(payments), batch_rows=3), name="payments", parallelism=1)
        slow = slow.rebalance().apply(lambda context: Dawdler(context, 3), name="check", parallelism=1)
        fast = p.source(op.from_arrow(pa.table(orders), batch_rows=7), name="orders", parallelism=1)
        joined = fast.join(slow, on="id", name="join")
        joined.key_by("id").agg(pairs=op.count(), name="per-id").sink(op.collect(), name="out")
    faults = Faults(1, crash_at=["step"], crash_after=[2], skew=0.5, stall=0.01, slow=0.1, fail=0.02, joins=0.5)
    settings: dict[str, Any] = {"alignment_timeout": "2ms"} if mode == "aligned-timeout" else {}
    settings |= {"every": "10ms", "max_concurrent": 2, "tolerable_failures": None}
    checkpoint = flow.Checkpointing(flow.MemoryStore(), mode=mode, **settings)
    return p.run(SimulatedRunner(seed, faults, max_turns=100_000), parallelism=2, checkpoint=checkpoint).events


@cache
def rows_of(mode: str, seed: int) -> Sequence[Row]:
    """The events as dictionaries, in their order."""
    return skewed_join(mode, seed).table.to_pylist()


@cache
def checkpoints(mode: str, seed: int) -> Sequence[tuple[list[Row], Sequence[Sentence], Row]]:
    """For each checkpoint the rows of its events, its sentences, and its row in ``events.checkpoints``."""
    events = skewed_join(mode, seed)
    rows: dict[tuple[int, int], list[Row]] = {}
    for row in rows_of(mode, seed):
        rows.setdefault((row["attempt"], row["checkpoint"]), []).append(row)
    lines = [(line["attempt"], line["checkpoint"], line) for line in events.checkpoints.to_pylist()]
    return [(rows[a, n], sentences_of(facts_of(events, n, a)), line) for a, n, line in lines]


def of(rows: Sequence[Row], *kinds: str) -> list[Row]:
    return [row for row in rows if row["kind"] in kinds]


def time_of(rows: Sequence[Row], kind: str, channel: str) -> int:
    (row,) = [row for row in of(rows, kind) if row["channel"] == channel]
    return int(row["time"])


def every_run() -> Any:
    """Each mode with seed 0 in the default tier, and with more seeds in the others."""
    return pytest.mark.parametrize(
        ("mode", "seed"), some_by_default([(mode, 0) for mode in MODES], MODES, range(20), extended=MORE)
    )


@every_run()
def test_the_three_parts_are_those_of_the_last_events(mode: str, seed: int) -> None:
    for rows, sentences, line in checkpoints(mode, seed):
        if not of(rows, "durable"):
            continue
        times = [max(row["time"] for row in of(rows, kind)) for kind in ("triggered", "complete", "part", "durable")]
        travel, write, manifest = np.diff(times).tolist()
        assert (line["travel"], line["write"], line["manifest"]) == (travel, write, manifest)
        assert line["duration"] == travel + write + manifest == of(rows, "durable")[0]["duration"]
        first, largest = sentences[0], max(travel, write, manifest)
        assert first.topic == "parts"
        assert first.figures["duration"] == line["duration"]
        assert [first.figures[part] for part in ("travel", "write", "manifest")] == [travel, write, manifest]
        assert first.text.startswith(
            "Barriers" if largest == travel else "State" if largest == write else "The manifest"
        )


@every_run()
def test_blocked_channels_and_their_sums_are_those_of_unblocked_events(mode: str, seed: int) -> None:
    events = skewed_join(mode, seed)
    for rows, sentences, line in checkpoints(mode, seed):
        times = Counter({row["channel"]: row["duration"] for row in of(rows, "unblocked")})
        assert line["blocked"] == times.total()
        assert line["longest_blocked_time"] == max(times.values(), default=0)
        topics = {sentence.topic: sentence for sentence in sentences}
        if line["state"] in ("durable", "committed") and of(rows, "arrived"):
            assert topics["blocked"].figures["blocked"] == max(times.values(), default=0)
        if len([time for time in times.values() if time]) > 1 and line["state"] in ("durable", "committed"):
            is_noise = max(times.values()) < max(1_000, line["duration"] / 100)
            assert is_noise or topics["all blocked"].figures["blocked"] == times.total()
    total, longest = Counter[str](), Counter[str]()
    for row in of(rows_of(mode, seed), "unblocked"):
        total[row["channel"]] += row["duration"]
        longest[row["channel"]] = max(longest[row["channel"]], row["duration"])
    blocked = blocked_channels(events, 99)
    assert {each.channel: (each.longest, each.blocked) for each in blocked} == {
        name: (longest[name], total[name]) for name in +longest
    }
    assert [each.longest for each in blocked] == sorted((+longest).values(), reverse=True)


@every_run()
def test_an_input_is_said_to_wait_for_the_barrier_that_was_the_last_to_arrive(mode: str, seed: int) -> None:
    for rows, sentences, _ in checkpoints(mode, seed):
        for sentence in sentences:
            found = re.fullmatch(
                r"(\S+ -> (\S+)) was blocked for .* and waited for the one of (\S+ -> \S+?)\.", sentence.text
            )
            if found and "still was" not in sentence.text and "until the attempt" not in sentence.text:
                arrivals = [row for row in of(rows, "arrived", "unblocked") if row["task"] == found[2]]
                arrivals.sort(key=lambda row: (row["time"], row["seq"]))
                end = next(
                    n for n, row in enumerate(arrivals) if row["kind"] == "unblocked" and row["channel"] == found[1]
                )
                assert of(arrivals[:end], "arrived")[-1]["channel"] == found[3], sentence.text


@every_run()
def test_time_in_a_queue_and_rows_ahead_are_those_of_the_named_channel(mode: str, seed: int) -> None:
    for rows, sentences, line in checkpoints(mode, seed):
        for sentence in sentences:
            if sentence.topic == "cause" and (found := QUEUE.search(sentence.text)):
                sent = time_of(rows, "sent", found[1])
                arrived = [row["time"] for row in of(rows, "arrived") if row["channel"] == found[1]]
                until = arrived[0] if arrived else line["triggered"] + (line["duration"] or 0)
                assert line["duration"] is None or sentence.figures["delay"] == until - sent
                (ahead,) = [row["rows"] for row in of(rows, "sent") if row["channel"] == found[1]]
                assert sentence.figures["rows_ahead"] == ahead


@every_run()
def test_delays_are_followed_upstream_and_the_longest_is_named(mode: str, seed: int) -> None:
    for rows, sentences, line in checkpoints(mode, seed):
        last = [sentence for sentence in sentences if "was complete last" in sentence.text]
        if last:
            complete = max(of(rows, "complete"), key=lambda row: row["time"])
            delays = list(walk(rows, complete["task"], complete["time"], line["triggered"]))
            assert sum(delays) == line["travel"]
            is_main = "also because" not in last[0].text  # else the longest was told before
            assert last[0].figures["delay"] == max(delays) if is_main else last[0].figures["delay"] in delays


def walk(rows: Sequence[Row], task: str, until: int, triggered: int) -> Iterator[int]:
    """The times that the last barrier of ``task`` spent at tasks and in channels, from the last to the first."""
    while True:
        arrivals = [row for row in of(rows, "arrived") if row["task"] == task and row["time"] <= until]
        if not arrivals:
            yield until - triggered
            return
        arrival = max(arrivals, key=lambda row: (row["time"], row["seq"]))
        yield until - arrival["time"]
        if arrival["detail"] == "started here":
            yield arrival["time"] - triggered
            return
        sent = next(row for row in of(rows, "sent") if row["channel"] == arrival["channel"])
        yield arrival["time"] - sent["time"]
        task, until = sent["task"], sent["time"]


@every_run()
def test_what_a_task_did_in_a_queue_s_time_is_in_its_samples(mode: str, seed: int) -> None:
    all_rows = rows_of(mode, seed)
    for rows, sentences, line in checkpoints(mode, seed):
        for sentence in sentences:
            found = QUEUE.search(sentence.text) if sentence.topic == "cause" else None
            if found is None or "unknown" in sentence.text or not of(rows, "durable"):
                continue
            begin, end = time_of(rows, "sent", found[1]), time_of(rows, "arrived", found[1])
            task = found[1].split(" -> ")[1]
            samples = {row["time"]: row["totals"] for row in of(all_rows, "work")
                       if row["task"] == task and row["attempt"] == line["attempt"]}  # fmt: skip
            times = [0, *samples]
            is_held = sentence.figures["rows_ahead"] and not (
                mode == "unaligned-persisted" and "overtaken" in sentence.figures
            )
            for name, at in (("busy", 2), ("blocked", 4), ("back_pressured", 5))[: 3 if is_held else 1]:
                totals = np.interp([begin, end], times, [0, *(each[at] for each in samples.values())])
                share = 100 * (totals[1] - totals[0]) / (end - begin)
                assert abs(sentence.figures.get(name, share if share < 10 else -1) - share) <= 0.5 + 1e-6, sentence.text


@every_run()
def test_rows_overtaken_stored_predicted_and_repeated_are_counted_in_the_events(mode: str, seed: int) -> None:
    events = skewed_join(mode, seed)
    for rows, sentences, line in checkpoints(mode, seed):
        topics = {sentence.topic: sentence for sentence in sentences}
        overtaken = sum([row["rows"] for row in of(rows, "arrived")])
        assert line["rows_overtaken"] == overtaken
        if "overtaken" in topics:
            assert topics["overtaken"].figures["overtaken"] == overtaken
        if "stored" in topics:
            stored = sum([row["rows"] for row in of(rows, "complete")])
            assert dict(topics["stored"].figures)["stored"] == stored == line["rows_in_flight"]
            assert topics["stored"].figures["between"] == stored - overtaken
        if "prediction" in topics:
            ahead = sum([row["rows"] for row in of(rows, "sent")])
            assert topics["prediction"].figures["rows_ahead"] == ahead + queued_of_ended(events, rows, line)
            assert topics["prediction"].figures.get("sooner") == (line["travel"] if of(rows, "durable") else None)
        if "repeats" in topics:
            repeats: Counter[str] = Counter()
            for row in of(rows, "repeats"):
                repeats[f"repeats at {row['operator']}"] += row["rows"]
            assert dict(topics["repeats"].figures) == dict(+repeats)


def queued_of_ended(events: Events, rows: Sequence[Row], line: Row) -> int:
    """The rows in channels that had no barrier, after their writers ended, at the reader's first sample."""
    sent, total = {row["channel"] for row in of(rows, "sent")}, 0
    until = line["triggered"] + line["duration"] if line["duration"] is not None else None
    these = [row for row in events.table.to_pylist() if row["attempt"] == line["attempt"]]
    last = max(row["time"] for row in these) if until is None else until
    ended = {row["task"]: row["time"] for row in of(these, "ended")}
    for task in events.plan.tasks:
        inputs = [channel for channel in events.plan.channels if channel.target == task]
        samples = [row for row in of(these, "work") if row["task"] == task and line["triggered"] <= row["time"] <= last]
        for at, channel in enumerate(inputs):
            if samples and channel.name not in sent and channel.source in ended:
                total += samples[0]["totals"][6 + at] if ended.get(task, last + 1) > line["triggered"] else 0
    return total


def test_each_topic_occurs_in_these_runs_so_the_tests_above_count_something() -> None:
    topics: Counter[tuple[str, str]] = Counter()
    for mode in MODES:
        for _, sentences, _ in checkpoints(mode, 0):
            topics.update([(mode, sentence.topic) for sentence in sentences if sentence.figures])
    expected = {
        "aligned": "prediction",
        "unaligned": "repeats",
        "unaligned-persisted": "stored",
        "aligned-timeout": "stored",
    }
    for mode, topic in expected.items():
        assert topics[mode, topic] > 1, topics
        assert topics[mode, "parts"] > 3
    assert topics["aligned", "all blocked"] > 2


@every_run()
def test_the_slowest_checkpoints_and_the_chosen_one_are_those_of_the_events(mode: str, seed: int) -> None:
    events = skewed_join(mode, seed)
    rows = rows_of(mode, seed)
    longest = max(row["duration"] for row in of(rows, "durable"))
    assert slowest(events, 1)[0].duration == longest
    channels = {channel.name for channel in events.plan.channels}
    arrived: dict[tuple[int, int], set[str]] = {}
    for row in of(rows, "arrived"):
        if row["detail"] != "started here":
            arrived.setdefault((row["attempt"], row["checkpoint"]), set()).add(row["channel"])
    full = [row for row in of(rows, "durable") if arrived.get((row["attempt"], row["checkpoint"])) == channels]
    best = max(full or of(rows, "durable"), key=lambda row: row["duration"])
    assert choose(events) == (best["attempt"], best["checkpoint"])
