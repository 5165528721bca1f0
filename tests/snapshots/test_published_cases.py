"""Published runs, replayed by hand: every recorded state, every channel state, complete neither early nor late.

The facts are those of the test data of Princeton's COS 418 (fall 2018), assignment 2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataflow.snapshots.processes import Channel, Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.system import Marker, System

CASES = json.loads(Path(__file__).with_name("published_cases.json").read_text())


class Purse(Process):
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def receive(self, sender: str, message: int) -> None:
        self.tokens += message

    @action
    def send(self, to: str, tokens: int) -> Sends:
        self.tokens -= tokens
        return {to: tokens}


def system_of(case: dict[str, Any]) -> System:
    graph = ProcessGraph()
    for node in case["nodes"]:
        graph.add(node["id"], Purse(node["tokens"]))
    for link in case["links"]:
        graph.channel(link["src"], link["dst"])
    return System(graph)


def replay(system: System, script: list[dict[str, Any]]) -> None:
    for step in script:
        match step["op"]:
            case "send":
                system.act(step["src"], "send", step["dst"], step["tokens"])
            case "snapshot":
                assert system.snapshot(step["node"]) == step["snapshot"]
            case "deliver":
                due = set(system.snapshots)
                found = system.deliver(step["src"], step["dst"])
                assert found == (Marker(step["value"]) if step["kind"] == "marker" else step["value"])
                completed = set(system.snapshots) - due
                assert completed <= {step["value"]} if step["kind"] == "marker" else not completed
            case "expect_complete":
                assert step["snapshot"] in system.snapshots


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_published_run_records_what_was_published(case: dict[str, Any]) -> None:
    system = system_of(case)
    replay(system, case["script"])
    assert {name: state["tokens"] for name, state in system.state.processes.items()} == case["final_tokens"]
    assert sorted(system.snapshots) == [expected["snapshot"] for expected in case["expected"]]
    for expected in case["expected"]:
        found = system.snapshots[expected["snapshot"]]
        assert {name: state["tokens"] for name, state in found.processes.items()} == expected["tokens"]
        channels = {Channel(each["src"], each["dst"]): tuple(each["tokens"]) for each in expected["channels"]}
        assert found.channels == channels


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_snapshot_is_complete_with_its_last_marker_and_not_before(case: dict[str, Any]) -> None:
    system, script = system_of(case), case["script"]
    for number, step in enumerate(script):
        if step["op"] == "expect_complete":
            assert step["snapshot"] in system.snapshots
        elif step["op"] != "send":
            waiting = {s["snapshot"] for s in script[number + 1 :] if s["op"] == "expect_complete"}
            left = {s["value"] for s in script[number:] if s["op"] == "deliver" and s["kind"] == "marker"}
            assert not (waiting & left) & set(system.snapshots)
            replay(system, [step])
        else:
            replay(system, [step])
