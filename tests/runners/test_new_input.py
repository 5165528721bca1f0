"""Input that came after a job began: it is not read, and that is said."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import Split
from dataflow.errors import InputChanged, InputMissingWarning, NewInputWarning
from dataflow.testing import ScriptedSource


def write(directory: Path, name: str, *numbers: int) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": numbers}), directory / name)


def run(directory: Path, source: flow.Source | None = None) -> flow.RunResult:
    with flow.Pipeline("files") as p:
        p.source(source or op.read_parquet(directory / "in"), name="bids").sink(op.collect(), name="rows")
    return p.run(parallelism=2, checkpoint=flow.Checkpointing(directory / "ckpt"))


def test_a_file_that_came_after_the_job_began_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "in", "a.parquet", 1, 2)
    run(tmp_path)
    write(tmp_path / "in", "b.parquet", 3)
    write(tmp_path / "in", "c.parquet", 4)
    with (
        caplog.at_level(logging.WARNING, "dataflow.restore"),
        pytest.warns(NewInputWarning, match=r"2 new splits of source 'bids' \(first: '.*b.parquet#0'\)") as caught,
    ):
        result = run(tmp_path)
    assert result.table("rows")["x"].to_pylist() == [1, 2]
    assert caught[0].filename == __file__
    assert "another checkpoint directory" in caplog.text
    assert result.restore_report is not None
    assert result.restore_report.not_read == tuple(f"bids/{tmp_path}/in/{name}.parquet#0" for name in "bc")
    assert "not read     2 splits new since the job started" in str(result.restore_report)
    assert f"{tmp_path}/in/b.parquet#0\n" in str(result.restore_report)


def test_the_same_input_again_is_nothing_to_talk_about(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", 1, 2)
    run(tmp_path)
    result = run(tmp_path)
    assert result.restore_report is not None
    assert result.restore_report.not_read == ()


def test_a_path_that_is_written_in_another_way_is_no_new_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", "a.parquet", 1, 2)
    monkeypatch.chdir(tmp_path)
    run(tmp_path, op.read_parquet("in"))
    for source in (op.read_parquet(tmp_path / "in"), op.read_parquet("./in/../in/a.parquet")):
        result = run(tmp_path, source)  # warnings are errors here
        assert result.restore_report is not None
        assert result.restore_report.not_read == ()


def test_input_that_vanished_is_refused_whatever_is_new(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", 1, 2)
    run(tmp_path)
    (tmp_path / "in/a.parquet").rename(tmp_path / "in/b.parquet")
    with pytest.raises(InputChanged, match=r"a\.parquet"):
        run(tmp_path)


def test_who_takes_warnings_for_errors_can_run_again(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", 1, 2)
    run(tmp_path)
    write(tmp_path / "in", "b.parquet", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NewInputWarning):
            run(tmp_path)
    (tmp_path / "in/b.parquet").unlink()
    assert run(tmp_path).table("rows")["x"].to_pylist() == [1, 2]


class Forgetful(ScriptedSource):
    """Lists its splits once."""

    def splits(self) -> Sequence[Split]:
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked > 1:
            raise OSError("the catalogue is away")
        return super().splits()


def test_a_source_that_cannot_list_its_splits_any_more_is_restored_with_a_warning(tmp_path: Path) -> None:
    source = Forgetful([pa.record_batch({"x": [1, 2]})])
    run(tmp_path, source)
    with pytest.warns(InputMissingWarning, match="'bids' cannot list its splits, so new input is not detected"):
        assert run(tmp_path, source).table("rows")["x"].to_pylist() == [1, 2]
