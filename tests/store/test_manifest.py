"""Manifests of every format that was ever released stay readable: the bytes below are never to be edited."""

from __future__ import annotations

from pathlib import Path

from dataflow.store.manifest import Manifest, PartHandle, decode, encode

GOLDEN = Path(__file__).parent / "golden" / "manifest-1.json"

EXPECTED = Manifest(
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


def test_the_manifest_of_the_first_release_is_read() -> None:
    assert decode(GOLDEN.read_bytes(), str(GOLDEN)) == EXPECTED


def test_the_bytes_written_today_are_those_of_the_format() -> None:
    assert encode(EXPECTED) == GOLDEN.read_bytes()
