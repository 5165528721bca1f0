"""Manifests of every format that was ever released stay readable: the bytes below are never to be edited."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataflow.store.manifest import FORMAT, LOG, Manifest, PartHandle, decode, encode

GOLDEN = Path(__file__).parent / "golden"

FIRST = Manifest(
    format=1,
    checkpoint=7,
    kind="savepoint",
    pipeline="flights ✈",
    mode="unaligned",
    guarantee="at least once",
    finished=True,
    created=1700000000.25,
    run_id="r-1",
    nodes=(
        {
            "name": "counts",
            "kind": "aggregate",
            "parallelism": 2,
            "detail": {"keys": ["origin"]},
            "inputs": ["source"],
            "schema": "origin: string\nn: int64",
        },
    ),
    parts=(PartHandle("counts-0", "counts-0.part", 5, "d24ec4f1a98c6e5b"),),
    transactions={"out": [{"staged": "00000-000001.staged", "file": "part-00000007-00000-0000.parquet", "rows": 3}]},
    summary={"duplicates": 4, "seconds": 0.5},
)


SECOND = msgspec.structs.replace(
    FIRST,
    format=2,
    parts=(
        PartHandle("counts-0", "counts-0.3.0.part", 5, "d24ec4f1a98c6e5b"),
        PartHandle("counts-0", "counts-0.2.1.part", 900, "0f2ec4f1a98c6e5b", LOG, 4),
        PartHandle("counts-0", "counts-0.3.1.part", 50, "a24ec4f1a98c6e5b", LOG),
    ),
)

EXPECTED = {1: FIRST, 2: SECOND}


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_the_manifest_of_every_release_is_read(version: int) -> None:
    path = GOLDEN / f"manifest-{version}.json"
    assert decode(path.read_bytes(), str(path)) == EXPECTED[version]


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_the_bytes_written_today_are_those_of_the_format(version: int) -> None:
    assert encode(EXPECTED[version]) == (GOLDEN / f"manifest-{version}.json").read_bytes()
