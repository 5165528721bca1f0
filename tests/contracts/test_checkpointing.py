"""The settings of checkpoints, and modes that never stand without their guarantee."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dataflow import Checkpointing, Guarantee, MemoryStore, Mode
from dataflow.errors import ConfigurationError


def test_the_defaults_are_safe() -> None:
    c = Checkpointing("ckpt")
    assert (c.mode, c.every, c.keep, c.max_concurrent, c.duplicates) == (Mode.ALIGNED, None, 3, 1, "sample")
    assert (c.min_pause, c.timeout, c.tolerable_failures) == (0, 600_000_000, 10)


@pytest.mark.parametrize(
    "url", ["file://elsewhere/job", "s3://bucket/job", "gs://bucket/job", Path("abfs://bucket/job")]
)
def test_a_url_is_refused_when_the_settings_are_made(url: object) -> None:
    with pytest.raises(ConfigurationError, match="object stores and other URLs are not supported, only directories"):
        Checkpointing(url)  # type: ignore[arg-type]


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names no directory; write"):
        Checkpointing("")


def test_a_file_url_is_the_path_it_names() -> None:
    assert Checkpointing("file://localhost/data/job").location == "/data/job"
    assert Checkpointing("file:///data/my%20job").location == "/data/my job"


def test_times_are_kept_in_microseconds() -> None:
    c = Checkpointing("ckpt", every="1s", min_pause=timedelta(milliseconds=5), timeout="2min")
    assert (c.every, c.min_pause, c.timeout) == (1_000_000, 5_000, 120_000_000)


@pytest.mark.parametrize(
    ("mode", "guarantee"),
    [
        ("aligned", "exactly once"),
        ("unaligned", "at least once"),
        ("unaligned-persisted", "exactly once"),
        ("aligned-timeout", "exactly once"),
    ],
)
def test_a_mode_is_printed_with_its_guarantee(mode: str, guarantee: str) -> None:
    found = Checkpointing("ckpt", mode=mode).mode
    assert (str(found), found.guarantee.value) == (f"{mode} ({guarantee})", guarantee)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"mode": "alligned"},
            r"mode=\) must be one of \['aligned', 'unaligned', .*\], got 'alligned' \(did you mean 'aligned'\?\)",
        ),
        ({"alignment_timeout": "1s"}, "needs mode='aligned-timeout', got mode='aligned'"),
        ({"mode": "aligned-timeout", "alignment_timeout": 1}, r"alignment_timeout=\) must be a timedelta or text"),
        ({"mode": 3}, "mode=.*got 3"),
        ({"every": 1}, r"Checkpointing\(every=\) must be a timedelta or text"),
        ({"every": "0s"}, "above zero, got 0; None switches periodic checkpoints off"),
        ({"min_pause": "-1s"}, r"Checkpointing\(min_pause=\)"),
        ({"timeout": "soon"}, r"Checkpointing\(timeout=\) .*got 'soon'"),
        ({"keep": 0}, "at least 1, got 0"),
        ({"max_concurrent": 0}, "at least 1, got 0"),
        ({"tolerable_failures": -1}, "at least 0, got -1"),
        ({"duplicates": "all"}, "'sample' or 'rows', got 'all'"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Checkpointing("ckpt", **settings)


def test_an_aligned_checkpoint_turns_after_100_ms_unless_told_otherwise() -> None:
    settings = [Checkpointing("ckpt", mode="aligned-timeout", **given) for given in ({}, {"alignment_timeout": "0s"})]
    assert [s.alignment_timeout for s in settings] == [100_000, 0]


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Checkpointing("ckpt").keep = 5  # type: ignore[misc]


def test_a_store_is_a_location() -> None:
    store = MemoryStore()
    assert Checkpointing(store).location is store


def test_guarantees_are_listed_weakest_first() -> None:
    assert [g.value for g in Guarantee] == ["at most once", "at least once", "exactly once"]


@pytest.mark.parametrize(
    ("location", "settings", "text"),
    [
        (None, {}, "a directory or a CheckpointStore, got None; .* checkpoint=None"),
        ("ckpt", {"keep": "3"}, r"Checkpointing\(keep=\) must be a whole number of at least 1, got '3'"),
    ],
)
def test_settings_of_the_wrong_type_are_refused(location: Any, settings: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Checkpointing(location, **settings)
