"""What is restored, and when a checkpoint does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataflow.errors import CheckpointDamaged, CheckpointsExist, ConfigurationError, NoCheckpoint
from dataflow.protocol.recovery import (
    ByPath,
    Found,
    Fresh,
    Policy,
    Request,
    Restore,
    Skipped,
    choose,
    differences,
    parse,
)

WHERE = "ckpt/"
BY_HAND = "a savepoint is restored only when named: restore="


def store(text: str) -> tuple[list[int], Callable[[int], Found]]:
    """``"1 2s 3x"``: a checkpoint, a savepoint, a damaged one."""
    found = {
        int(word.rstrip("sx")): Found(savepoint=word.endswith("s"), damage="torn" if word.endswith("x") else None)
        for word in text.split()
    }
    return list(found), found.__getitem__


@pytest.mark.parametrize("policy", [Policy.AUTO, Policy.LATEST])
@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("1 2 3", Restore(3)),
        ("10 9", Restore(10)),
        ("1 2 3x", Restore(2, (Skipped(3, "torn"),))),
        ("1 2x 3x", Restore(1, (Skipped(3, "torn"), Skipped(2, "torn")))),
        ("1 2s", Restore(1, (Skipped(2, BY_HAND + "2"),))),
        ("1s 2", Restore(2)),
    ],
)
def test_the_newest_valid_ordinary_checkpoint_is_taken_and_newer_ones_are_listed(
    policy: Policy, held: str, expected: Restore
) -> None:
    assert choose(policy, *store(held), WHERE) == expected


def test_nothing_is_looked_at_beyond_the_first_valid_one() -> None:
    looked: list[int] = []
    choose(Policy.AUTO, [1, 2, 3], lambda id: (looked.append(id), Found())[1], WHERE)
    assert looked == [3]


def test_auto_starts_afresh_only_where_nothing_can_be_lost() -> None:
    assert choose(Policy.AUTO, *store(""), WHERE) == Fresh()
    assert choose(Policy.AUTO, *store("2s"), WHERE) == Fresh((Skipped(2, BY_HAND + "2"),))
    with pytest.raises(CheckpointDamaged, match=r"(?s)no checkpoint in ckpt/ can be restored:.*2: torn.*1: a save"):
        choose(Policy.AUTO, *store("1s 2x"), WHERE)


def test_latest_needs_one() -> None:
    with pytest.raises(NoCheckpoint, match="there is no checkpoint in ckpt/ to restore"):
        choose(Policy.LATEST, *store(""), WHERE)
    with pytest.raises(NoCheckpoint, match="restore=4"):
        choose(Policy.LATEST, *store("4s"), WHERE)
    with pytest.raises(CheckpointDamaged):
        choose(Policy.LATEST, *store("4x"), WHERE)


def test_never_refuses_a_directory_with_checkpoints() -> None:
    assert choose(Policy.NEVER, *store(""), WHERE) == Fresh()
    with pytest.raises(CheckpointsExist, match=r'already holds checkpoints \[1, 2\] and restore="never"'):
        choose(Policy.NEVER, *store("2x 1"), WHERE)


def test_an_id_gets_exactly_that_or_an_error() -> None:
    assert choose(2, *store("1 2s 3"), WHERE) == Restore(2)
    with pytest.raises(NoCheckpoint, match=r"there is no checkpoint 5 in ckpt/; there are \[1, 3\]"):
        choose(5, *store("3 1"), WHERE)
    with pytest.raises(CheckpointDamaged, match="the requested checkpoint 3 in ckpt/ is damaged: torn"):
        choose(3, *store("1 2 3x"), WHERE)


@pytest.mark.parametrize(
    ("restore", "request_"),
    [
        ("auto", Policy.AUTO),
        ("never", Policy.NEVER),
        (Policy.LATEST, Policy.LATEST),
        (7, 7),
        (1, 1),
        ("1", 1),
        ("0", ByPath("0")),
        (ByPath("7"), ByPath("7")),
        ("12", 12),
        ("./12", ByPath("./12")),
        ("²", ByPath("²")),
        (Path("a/chk-00000001"), ByPath("a/chk-00000001")),
    ],
)
def test_what_a_user_may_ask_for(restore: object, request_: Request) -> None:
    assert parse(restore) == request_


@pytest.mark.parametrize("restore", [None, True, 0, -1, 1.5, "", b"auto"])
def test_what_a_user_may_not_ask_for(restore: object) -> None:
    with pytest.raises(ConfigurationError, match='restore= takes "auto", "never", "latest"'):
        parse(restore)


def node(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "map", "parallelism": 2, "detail": {}, "inputs": [], "schema": "a: int64", **fields}


@pytest.mark.parametrize(
    ("saved", "now", "expected"),
    [
        ([node("a")], [node("a")], []),
        ([node("a"), node("b")], [node("b"), node("a")], []),
        ([node("a", inputs=["x"])], [node("a", inputs=("x",))], []),
        (
            [node("counts")],
            [node("count")],
            ["operator 'counts' is gone (did you mean 'count'?)", "operator 'count' is new"],
        ),
        (
            [node("a"), node("b")],
            [node("x1")],
            ["operator 'a' is gone", "operator 'b' is gone", "operator 'x1' is new"],
        ),
        ([node("a")], [node("a", kind="filter")], ["operator 'a': kind was map, now filter"]),
        ([node("a")], [node("a", parallelism=4)], ["operator 'a': parallelism was 2, now 4"]),
        (
            [node("a", schema=[["x", "int64"], ["y", "bool"], ["z", "bool"]])],
            [node("a", schema=[["x", "int64"], ["y", "string"], ["w", "bool"]])],
            ["operator 'a': schema lost 'z', has 'w' (bool) new, 'y' was bool, now string"],
        ),
        (
            [node("a", schema=[["x", "int64"], ["y", "bool"]])],
            [node("a", schema=[["y", "bool"], ["x", "int64"]])],
            ["operator 'a': schema has its columns in another order: [x, y], now [y, x]"],
        ),
        (
            [node("a", schema=[["x", "int64"], ["x", "bool"]])],
            [node("a", schema=[["x", "int64"]])],
            ["operator 'a': schema was [[x, int64], [x, bool]], now [[x, int64]]"],
        ),
        (
            [node("a", schema=[])],
            [node("a", schema=[["x", "int64"]])],
            ["operator 'a': schema was [], now [[x, int64]]"],
        ),
        (
            [node("a", detail={"pairs": [["x", "y", "z"]]})],
            [node("a", detail={"pairs": [["x", "y"]]})],
            ["operator 'a': pairs were [[x, y, z]], now [[x, y]]"],
        ),
        (
            [node("a", detail={"keys": ["x"], "size": 1})],
            [node("a", detail={"keys": ["x", "y"]})],
            ["operator 'a': keys were [x], now [x, y]", "operator 'a': size was 1, now absent"],
        ),
        ([node("a")], [node("a", inputs=["b"])], ["operator 'a': inputs were [], now [b]"]),
        ([node("a")], [node("a", detail={"keys": ["x"]})], ["operator 'a': keys were absent, now [x]"]),
        ([node("a", detail={"by": [["x"]]})], [node("a", detail={"by": [("x",)]})], []),
        (
            [node("a", detail={"size": {"rows": 1}})],
            [node("a", detail={"size": 2})],
            ["operator 'a': size was {'rows': 1}, now 2"],
        ),
        (
            [node("a", detail={"size": 2})],
            [node("a", detail={"size": {"rows": 1}})],
            ["operator 'a': size was 2, now {'rows': 1}"],
        ),
        (
            [node("a", detail={"size": 2})],
            [node("a", detail={"size": 3}, inputs=["b"])],
            ["operator 'a': size was 2, now 3", "operator 'a': inputs were [], now [b]"],
        ),
    ],
)
def test_differences_read_as_sentences(saved: list[Any], now: list[Any], expected: list[str]) -> None:
    assert differences(saved, now) == expected
