"""A directory that several jobs write to, or one job with other settings: its rows can be read as one table."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointMismatch, DirectoryNameWarning, OutputExists, SchemaMismatch, StoreError

SINKS: dict[str, Any] = {"parquet": op.write_parquet, "csv": op.write_csv, "json": op.write_json, "ipc": op.write_ipc}
XK = pa.table({"x": [1, 2], "k": ["a", None]})


def run(table: pa.Table, *sinks: flow.Sink, **options: Any) -> flow.RunResult:
    with flow.Pipeline("writes") as p:
        rows = p.source(op.from_arrow(table), name="rows")
        for number, sink in enumerate(sinks):
            rows.sink(sink, name=f"out {number}")
    return p.run(**options)


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def with_k(k: pa.Array) -> pa.Table:
    return pa.table({"x": [3] * len(k), "k": k})


def texts(type_: pa.DataType) -> pa.Table:
    return with_k(pa.array(["b", None]).cast(type_))


ONE_TYPE = {
    "text": texts(pa.string()),
    "large text": texts(pa.large_string()),
    "a dictionary": with_k(pa.array(["b", None]).dictionary_encode()),
    "no value": with_k(pa.nulls(2)),
}


@pytest.mark.parametrize("name", SINKS)
def test_rows_of_the_same_parquet_types_are_appended_and_read_as_one_table(name: str, tmp_path: Path) -> None:
    for first in ("text", "no value"):
        out = tmp_path / first
        for table in (ONE_TYPE[first], *ONE_TYPE.values()):
            run(table, SINKS[name](out, if_exists="append"))
        k = op.read_committed(out)["k"].to_pylist()
        assert (len(k), k.count("b")) == (10, 4 if first == "text" else 3)


OTHER_COLUMNS = {
    r"column 'x' is int64 in .*part-00000001-00000-0000\S*, and int32 here": XK.set_column(
        0, "x", pa.array([1, 2], pa.int32())
    ),
    r"column 'k' is string in .*, and int64 here": with_k(pa.array([1])),
    r"the columns are \['x', 'k'\] in .*, and \['k', 'x'\] here": XK.select(["k", "x"]),
    r"the columns are \['x', 'k'\] in .*, and \['x'\] here": XK.select(["x"]),
    r"the columns are \['x', 'k'\] in .*, and \['x', 'k', 'z'\] here": XK.append_column("z", XK["x"]),
}


@pytest.mark.parametrize("name", SINKS)
def test_rows_with_other_columns_are_refused_and_nothing_is_changed(name: str, tmp_path: Path) -> None:
    run(XK, SINKS[name](tmp_path))
    before = tree(tmp_path)
    for message, table in OTHER_COLUMNS.items():
        with pytest.raises(SchemaMismatch, match=message):
            SINKS[name](tmp_path, if_exists="append").check_target(table.schema)
    with pytest.raises(SchemaMismatch, match=r"if_exists='append'\): column 'k' is string .* select\(\) and cast\(\)"):
        run(with_k(pa.array([1])), SINKS[name](tmp_path, if_exists="append"))
    assert {file: content for file, content in tree(tmp_path).items() if "_staging" not in file} == {
        file: content for file, content in before.items() if "_staging" not in file
    }


def test_if_one_sink_refuses_its_directory_those_of_the_others_stay_as_they_are(tmp_path: Path) -> None:
    run(XK, op.write_csv(tmp_path / "a"), op.write_csv(tmp_path / "b"))
    run(XK.select(["x"]), op.write_csv(tmp_path / "b", if_exists="overwrite"))
    with pytest.raises(SchemaMismatch):
        run(XK, op.write_csv(tmp_path / "a", if_exists="overwrite"), op.write_csv(tmp_path / "b", if_exists="append"))
    assert op.read_committed(tmp_path / "a").num_rows == 2


@pytest.mark.parametrize("if_exists", ["error", "overwrite"])
def test_output_that_is_to_be_overwritten_stays_if_another_sink_refuses(if_exists: Any, tmp_path: Path) -> None:
    run(XK, op.write_csv(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.csv").write_text("x\n1\n")
    with pytest.raises(OutputExists):
        run(XK, op.write_csv(tmp_path / "a", if_exists="overwrite"), op.write_csv(tmp_path / "b", if_exists=if_exists))
    assert op.read_committed(tmp_path / "a").num_rows == 2


def test_a_job_that_begins_again_takes_back_its_own_rows_and_none_from_before_it(tmp_path: Path) -> None:
    out, settings = tmp_path / "out", flow.Checkpointing(tmp_path / "ckpt", keep=100)
    run(XK, op.write_csv(out))
    run(XK, op.write_csv(out, if_exists="append"), checkpoint=settings)
    assert op.read_committed(out).num_rows == 4
    taken = op.write_csv(out, if_exists="append").recover(0, ())
    assert taken is not None
    assert (taken.rows, taken.files) == (2, 1)
    assert op.read_committed(out).num_rows == 2


def test_the_newest_file_decides_and_older_ones_only_for_columns_without_a_value(tmp_path: Path) -> None:
    for k in (pa.array([1]), pa.nulls(1)):
        run(with_k(k), op.write_parquet(tmp_path, if_exists="append"))
    sink = op.write_parquet(tmp_path, if_exists="append")
    sink.check_target(with_k(pa.array([1])).schema)
    with pytest.raises(SchemaMismatch, match=r"column 'k' is int64 in .*, and string here"):
        sink.check_target(XK.schema)


@pytest.mark.parametrize(("before", "now"), [(None, "k"), ("k", None), ("k", ["k", "z"]), (["k", "z"], ["z", "k"])])
def test_rows_in_other_folders_are_not_appended(before: Any, now: Any, tmp_path: Path) -> None:
    table = XK.append_column("z", XK["x"])
    run(table, op.write_parquet(tmp_path, partition_by=before))
    op.write_parquet(tmp_path, partition_by=before, if_exists="append").check_target(table.schema)
    with pytest.raises(OutputExists, match=r"expected rows in folders by \[.*use the same partition_by="):
        op.write_parquet(tmp_path, partition_by=now, if_exists="append").check_target(table.schema)


def test_in_a_mixed_directory_two_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    run(XK, op.write_parquet(tmp_path))
    run(with_k(pa.array([1])), op.write_parquet(tmp_path / "other"))
    other = next((tmp_path / "other").glob("*.parquet")).rename(tmp_path / "part-00000007-00000-0000.parquet")
    listed = (tmp_path / "other" / "_commits" / "1.json").read_text()
    (tmp_path / "_commits" / "7.json").write_text(listed.replace("00000001", "00000007").replace(": 1,", ": 7,", 1))
    with pytest.raises(StoreError, match=rf"'k' is string in .*part-00000001\S*, and int64 in {other}; move"):
        op.read_committed(tmp_path)


def test_a_job_does_not_change_its_folders_or_the_form_of_its_text_at_a_restore(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    folders: dict[str, Any] = {"partition_by": "k"}
    run(XK, op.write_parquet(tmp_path / "p", **folders), op.write_csv(tmp_path / "c"), checkpoint=settings)
    for changed, csv, message in (
        ({}, {}, r"operator 'out 0': partition_by was \[k\], now absent"),
        ({"partition_by": "x"}, {}, r"partition_by was \[k\], now \[x\]"),
        (folders, {"delimiter": ";"}, r"operator 'out 1': delimiter was absent, now ;"),
        (folders, {"header": False}, r"header was absent, now False"),
    ):
        with pytest.raises(CheckpointMismatch, match=message):
            run(
                XK,
                op.write_parquet(tmp_path / "p", **changed),
                op.write_csv(tmp_path / "c", **csv),
                checkpoint=settings,
            )
    same = (op.write_parquet(tmp_path / "p", compression="snappy", **folders), op.write_csv(tmp_path / "c"))
    assert run(XK, *same, checkpoint=settings).restore_report is not None


def test_the_printed_pattern_has_the_files_of_every_compression(tmp_path: Path) -> None:
    first = run(XK, op.write_csv(tmp_path)).outputs["out 0"]
    second = run(XK, op.write_csv(tmp_path, compression="gzip", if_exists="append")).outputs["out 0"]
    files = sorted(Path(second).parent.glob(Path(second).name))
    assert (Path(first).name, Path(second).name) == ("*.csv", "*.csv*")
    assert [path.suffix for path in files] == [".csv", ".gz"]
    assert gzip.decompress(files[1].read_bytes()) == files[0].read_bytes()


@pytest.mark.parametrize("name", ["x.parquet", "x.csv.gz", "X.JSON"])
def test_a_directory_that_is_named_like_a_file_is_warned_of_until_it_exists(name: str, tmp_path: Path) -> None:
    with pytest.warns(DirectoryNameWarning, match=r"a directory of this name, with files in it.*such as '.*/[xX]'$"):
        op.write_parquet(tmp_path / name)
    (tmp_path / name).mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.write_parquet(tmp_path / name)
        op.write_parquet(tmp_path / "v1.5")


def test_a_setting_of_a_sink_that_checkpoints_cannot_store_is_named(tmp_path: Path) -> None:
    class Odd(type(op.write_csv(tmp_path))):  # type: ignore[misc]
        fixed_settings = {"tags": {"a"}}  # noqa: RUF012

    sink = op.write_csv(tmp_path)
    sink.__class__ = Odd
    with pytest.raises(TypeError, match=r"fixed_settings of write_csv\(.*\['tags'\] is a set, which is not JSON"):
        run(XK, sink)
