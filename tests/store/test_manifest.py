"""The bytes of manifests: those that were written before are read, and every field has to be there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import xxhash

from dataflow.errors import CheckpointDamaged
from dataflow.store.manifest import (
    FORMAT,
    LATER_FIELDS,
    LOG,
    EarlierTarget,
    Manifest,
    Parent,
    PartHandle,
    decode,
    encode,
)

GOLDEN = Path(__file__).parent / "golden" / f"manifest-{FORMAT}.json"

EXPECTED = Manifest(
    format=FORMAT,
    checkpoint=7,
    kind="savepoint",
    pipeline="flights ✈",
    mode="unaligned",
    guarantee="at least once",
    finished=True,
    created=1700000000.25,
    run_id="r-1",
    job="8c5e0f0c6b7b4d6f9f0f3a1e2d4c5b6a",
    parent=Parent("0123456789abcdef0123456789abcdef", 3),
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
    parts=(
        PartHandle("counts-0", "counts-0.3.0.part", 5, "d24ec4f1a98c6e5b"),
        PartHandle("counts-0", "counts-0.2.1.part", 900, "0f2ec4f1a98c6e5b", LOG, 4),
        PartHandle("counts-0", "counts-0.3.1.part", 50, "a24ec4f1a98c6e5b", LOG),
    ),
    transactions={"out": [{"staged": "00000-000001.staged", "file": "part-00000007-00000-0000.parquet", "rows": 3}]},
    summary={"duplicates": 4, "seconds": 0.5},
)


@pytest.mark.parametrize("field", [name for name in EXPECTED.__struct_fields__ if name not in LATER_FIELDS])
def test_a_manifest_that_lacks_a_field_is_damage(field: str) -> None:
    fields = msgspec.to_builtins(EXPECTED)
    del fields[field]
    body = msgspec.json.encode(fields)
    data = msgspec.json.encode({"xxh3": xxhash.xxh3_64_hexdigest(body), "manifest": msgspec.Raw(body)})
    with pytest.raises(CheckpointDamaged, match=f"lacks {field}|missing required field `{field}`"):
        decode(data, "here")


def test_a_manifest_that_was_written_before_is_read() -> None:
    assert decode(GOLDEN.read_bytes(), str(GOLDEN)) == EXPECTED


def test_the_bytes_written_today_are_those_of_the_format() -> None:
    assert encode(EXPECTED) == GOLDEN.read_bytes()


def test_fields_that_older_manifests_lack_are_written_only_if_they_are_not_empty() -> None:
    later = {"targets": {"out": "/new"}, "earlier_targets": {"out": (EarlierTarget("/old", 3),)}}
    assert later.keys() == set(LATER_FIELDS)
    manifest = msgspec.structs.replace(EXPECTED, **later)
    assert decode(encode(manifest), "here") == manifest
    assert not any(f'"{field}"'.encode() in encode(EXPECTED) for field in LATER_FIELDS)
