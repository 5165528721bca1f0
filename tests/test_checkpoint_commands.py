"""The commands about stored checkpoints: what they print and delete, and with which exit code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import dataflow as flow
import operators as op
from dataflow.cli import main
from dataflow.observe.checkpoints import LEGEND
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import encode
from operators.sinks.collect import collect
from operators.sources.arrow import from_arrow
from tests.commands import on_a_terminal
from tests.golden.archives import unpack
from tests.golden.chain import CHAIN, ROWS, pipeline


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["checkpoints", *[str(argument) for argument in arguments]])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint directory with the one checkpoint of a job that finished."""
    folder = tmp_path / "ckpt"
    _numbers().run(checkpoint=flow.Checkpointing(folder, mode="unaligned"))
    return folder


def _numbers() -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        p.source(from_arrow(pa.table({"x": [1, 2, 3]})), name="numbers").sink(collect(), name="out")
    return p


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A directory with checkpoints 15 and 16, which need objects of 10 to 14, whose manifests are deleted."""
    return unpack(CHAIN, tmp_path) / "ckpt"


# --- ls


def test_checkpoints_are_listed_with_mode_and_guarantee(directory: Path) -> None:
    heading, _, line, *legend = _run(directory).stdout.splitlines()
    assert [cell.strip() for cell in heading.split("|")[1:3]] == ["id", "kind"]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:3] == ["1", "final", "unaligned (at least once)"]
    assert cells[-5:] == ["0", "0", "0", "yes", "whole"]
    assert "- repeated deliveries: rows that a restore delivers a second time, at the operator with the most" in legend


def test_on_a_narrow_terminal_no_figure_is_cut(tmp_path: Path) -> None:
    with flow.Pipeline("numbers") as p:
        rows = pa.table({"x": range(300_000)})
        p.source(from_arrow(rows), name="numbers").sink(collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt", mode="unaligned"))
    (line,) = json.loads(_run(tmp_path / "ckpt", "--json").stdout)
    printed = on_a_terminal(["checkpoints", str(tmp_path / "ckpt")], {"COLUMNS": "80"}, out=True)
    assert f"{line['bytes']:,}" in printed
    assert {"unaligned (at least once)", "whole"} <= {cell.strip() for cell in re.split(r"\s{2,}|\r\n", printed)}
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed


def test_checkpoints_as_json_have_every_field(directory: Path) -> None:
    (line,) = json.loads(_run(directory, "--json").stdout)
    assert line["created"] > 0
    assert line["bytes"] > 0
    assert line.pop("job") == flow.Checkpoint(directory, 1).job_id
    del line["created"], line["bytes"]
    assert line == {
        "id": 1,
        "status": "whole",
        "reason": None,
        "kind": "final",
        "pipeline": "numbers",
        "parent": None,
        "mode": "unaligned",
        "guarantee": "at least once",
        "tasks": 1,
        "in_flight_rows": 0,
        "in_flight_bytes": 0,
        "duplicated": {},
        "finished": True,
    }


def test_a_damaged_part_is_shown_with_the_reason(directory: Path) -> None:
    part = next(directory.glob("chk-00000001/*.part"))
    part.write_bytes(part.read_bytes()[:-1])
    done = _run(directory)
    assert done.exit_code == 0
    assert "final" in done.stdout
    assert "damaged: " in done.stdout
    assert "bytes when it was written" in " ".join(done.stdout.split())


def test_a_damaged_manifest_is_shown_with_the_reason(directory: Path) -> None:
    manifest = directory / "chk-00000001" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"numbers", b"numbars"))
    (line,) = json.loads(_run(directory, "--json").stdout)
    assert "the manifest was written with xxh3" in line["reason"]
    assert line["kind"] is None
    assert "?" in _run(directory).stdout


def test_an_empty_directory_has_no_checkpoints(tmp_path: Path) -> None:
    assert _run(tmp_path).stdout == (
        f"there are no checkpoints in {tmp_path}; give the directory that the job has as Checkpointing(location)\n"
    )
    assert json.loads(_run(tmp_path, "--json").stdout) == []


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    done = _run(tmp_path / "nowhere")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: expected a checkpoint directory at {tmp_path / 'nowhere'}, found nothing; give the directory that the "
        "job has as Checkpointing(location)\n"
    )


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "found a file" in _run(tmp_path / "file").stderr


def test_ls_is_the_command_without_a_name(directory: Path) -> None:
    assert (
        _run("ls", directory, "--json").stdout == _run(directory, "--json").stdout == _run("--json", directory).stdout
    )


def test_ls_names_the_objects_that_are_missing(chain: Path) -> None:
    shutil.rmtree(chain / "chk-00000012")
    lines = json.loads(_run("ls", chain, "--json").stdout)
    assert [(line["id"], line["status"]) for line in lines] == [(15, "incomplete"), (16, "incomplete")]
    assert "chk-00000012/out-0-" in lines[0]["reason"]
    assert "copy or restore the whole checkpoint directory" in lines[0]["reason"]


def test_ls_shows_an_unfinished_checkpoint_but_no_folder_that_others_need(chain: Path) -> None:
    with flow.DirectoryStore(chain) as store:
        store.write(17, "in[0]", b"no manifest")
    lines = json.loads(_run("ls", chain, "--json").stdout)
    assert [(line["id"], line["status"], line["bytes"]) for line in lines][2:] == [(17, "unfinished", 11)]
    assert "unfinished: no manifest names its objects" in _run("ls", chain).stdout


def test_ls_does_not_read_objects(chain: Path) -> None:
    _flip(chain / "chk-00000010", "*.1.1.part")
    assert {line["status"] for line in json.loads(_run("ls", chain, "--json").stdout)} == {"whole"}
    assert "reads every byte" in " ".join(_run("ls", chain).stdout.split())


# --- show


def test_show_prints_facts_objects_operators_and_the_restore(directory: Path) -> None:
    before = sorted(path.name for path in directory.rglob("*"))
    printed = _run("show", directory, "1").stdout
    sections = {text.splitlines()[0]: text for text in printed.split("\n\n")}
    assert list(sections) == [
        f"checkpoint 1 in {directory}",
        "objects",
        "operators",
        "state that operators declare",
        f"a restore of checkpoint 1 in {directory}, mode unaligned (at least once)",
    ]
    assert "| guarantee, end to end | at least once" in sections[f"checkpoint 1 in {directory}"]
    assert re.search(
        r"^\| numbers\[0\] \| log +\| .* \| +this one \| .* \| whole +\|$", sections["objects"], re.MULTILINE
    )
    assert re.search(r"^\| out +\| write \| +1 \| rows: 3 +\|", sections["operators"], re.MULTILINE)
    assert re.search(r"^\| out +\| rows +\| log \(keys=0\) \|$", sections["state that operators declare"], re.MULTILINE)
    *_, restore = sections.values()
    assert [line.split("|")[1].strip() for line in restore.splitlines()[3:]] == [
        "finished",
        "in flight",
        "duplicates",
        "state",
    ]
    assert sorted(path.name for path in directory.rglob("*")) == before


def test_show_as_json_has_every_field(directory: Path) -> None:
    found = json.loads(_run("show", directory, "1", "--json").stdout)
    (line,) = json.loads(_run("ls", directory, "--json").stdout)
    assert {key: found[key] for key in line} == line
    more = {"blocked_us", "format", "objects", "operators", "restore", "run_id"}
    assert found.keys() - line.keys() == more
    assert found["operators"][1] == {
        "name": "out",
        "kind": "write",
        "parallelism": 1,
        "tables": {"rows": 3},
        "pieces": {"rows": "log (keys=0)"},
        "in_flight_rows": 0,
        "duplicated": 0,
    }
    assert (found["restore"]["mode"], found["restore"]["finished"], found["restore"]["duration_us"]) == (
        "unaligned",
        True,
        None,
    )


def test_the_option_restore_is_short_for_show(directory: Path) -> None:
    for more in ([], ["--json"]):
        assert _run(directory, "--restore", "1", *more).stdout == _run("show", directory, "1", *more).stdout


def test_show_of_a_checkpoint_that_is_not_there_names_those_that_are(directory: Path) -> None:
    done = _run("show", directory, "7")
    assert (done.exit_code, done.stderr) == (2, f"error: there is no checkpoint 7 in {directory}; there are [1]\n")
    assert "found nothing" in _run("show", directory / "nowhere", "7").stderr


def test_show_prints_what_is_left_of_a_damaged_checkpoint(chain: Path) -> None:
    _flip(chain / "chk-00000012", "out-*.1.1.part")
    found = json.loads(_run("show", chain, "16", "--json").stdout)
    assert (found["status"], found["kind"], found["operators"], found["restore"]) == ("damaged", "checkpoint", [], None)
    assert [one["checkpoint"] for one in found["objects"] if one["status"] == "damaged"] == [12]
    (chain / "chk-00000016" / "manifest.json").write_text("{}")
    done = _run("show", chain, "16")
    assert (done.exit_code, "damaged: " in done.stdout, "operators" in done.stdout) == (0, True, False)


def test_show_of_an_unfinished_checkpoint_has_its_objects(chain: Path) -> None:
    with flow.DirectoryStore(chain) as store:
        store.write(17, "in[0]", b"no manifest")
    found = json.loads(_run("show", chain, "17", "--json").stdout)
    assert (found["status"], found["bytes"], len(found["objects"])) == ("unfinished", 11, 1)


def test_show_prints_the_channels_that_the_checkpoint_blocked_longest_first(directory: Path) -> None:
    assert "| blocked | no channel" in " ".join(_run("show", directory, "1").stdout.split())
    waits = {f"a[{i}] -> b[0]": i * 1_000 for i in range(1, 25)}
    _forge_summary(directory, blocked_in_checkpoint_us=waits)
    printed = _run("show", directory, "1").stdout.split("channels that its barriers blocked\n")[1]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.split("\n\n")[0].splitlines()]
    assert cells[2:4] == [["a[24] -> b[0]", "24.0 ms"], ["a[23] -> b[0]", "23.0 ms"]]
    assert cells[-1] == ["... and 4 more", ""]
    assert json.loads(_run("show", directory, "1", "--json").stdout)["blocked_us"] == waits


def test_show_says_that_an_older_checkpoint_has_only_sums_of_blocked_times(chain: Path) -> None:
    assert "not known: its manifest has only sums since the start of the run" in _run("show", chain, "16").stdout
    assert json.loads(_run("show", chain, "16", "--json").stdout)["blocked_us"] is None


def test_a_blocked_time_that_is_no_number_is_damage(directory: Path) -> None:
    _forge_summary(directory, blocked_in_checkpoint_us={"a[0] -> b[0]": "long"})
    assert "damaged" in _run("show", directory, "1").stdout


def _forge_summary(directory: Path, **entries: object) -> None:
    path = directory / "chk-00000001" / "manifest.json"
    manifest = CheckpointFolder(path).manifest()
    path.write_bytes(encode(msgspec.structs.replace(manifest, summary=manifest.summary | entries)))


def test_names_in_a_manifest_cannot_control_the_terminal(directory: Path) -> None:
    path = directory / "chk-00000001" / "manifest.json"
    manifest = CheckpointFolder(path).manifest()
    (part, *others) = manifest.parts
    forged = msgspec.structs.replace(part, file="\x1b[2J.part")
    path.write_bytes(encode(msgspec.structs.replace(manifest, pipeline="\x1b]0;title\x07", parts=(forged, *others))))
    for command in ("ls", "verify", "show"):
        printed = _run(command, directory, *(["1"] if command == "show" else [])).stdout
        assert "\x1b" not in printed
    assert "\\x1b]0;title\\x07" in printed


# --- verify


def test_verify_prints_each_object_and_succeeds(chain: Path) -> None:
    done = _run("verify", chain)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "checkpoint 15: 8 objects, 29,958 bytes, whole"
    assert done.stdout.splitlines()[-1] == "2 verified"
    assert len(re.findall(r"^\| (in|out)\[0\] .* whole +\|$", done.stdout, re.MULTILINE)) == 8 + 9


def test_verify_names_every_flipped_byte_of_a_chain(chain: Path) -> None:
    objects = sorted(chain.glob("chk-*/*"))
    assert len(objects) > 10
    for path in objects:
        data = path.read_bytes()
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        done = _run("verify", chain)
        assert done.exit_code == 1, path
        assert f"{path}: the " in done.stdout
        path.write_bytes(data)
    assert _run("verify", chain).exit_code == 0


def test_verify_reads_only_the_checkpoint_that_is_asked_for(chain: Path) -> None:
    _flip(chain / "chk-00000016", "in-*")
    assert _run("verify", chain, "15").exit_code == 0
    (found,) = json.loads(_run("verify", chain, "16", "--json").stdout)
    assert (found["id"], found["status"]) == (16, "damaged")
    assert [one["file"] for one in found["objects"] if one["status"] == "damaged"] == ["in-0-7bf582d51e2391e1.1.0.part"]
    assert sorted(found["objects"][0]) == ["bytes", "checkpoint", "file", "part", "reason", "status", "task"]


def test_verify_of_an_unknown_checkpoint_names_those_that_exist(chain: Path) -> None:
    done = _run("verify", chain, "15", "7")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: there is no checkpoint 7 in {chain}; there are [15, 16]\n"


def test_an_unfinished_checkpoint_is_no_damage_unless_it_is_asked_for(chain: Path) -> None:
    with flow.DirectoryStore(chain) as store:
        store.write(17, "in[0]", b"no manifest")
    assert _run("verify", chain).exit_code == 0
    assert _run("verify", chain, "17").exit_code == 1


# --- rm


@pytest.mark.parametrize(("removed", "left"), [(15, 16), (16, 15)])
def test_rm_leaves_what_other_checkpoints_need(removed: int, left: int, chain: Path) -> None:
    before = set(chain.glob("chk-*/*"))
    done = _run("rm", chain, str(removed))
    assert done.exit_code == 0
    deleted = {str(path.relative_to(chain)) for path in before - set(chain.glob("chk-*/*"))}
    assert {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")} == deleted
    assert flow.DirectoryStore(chain).checkpoints() == [left]
    settings = flow.Checkpointing(chain)
    result = pipeline().run(flow.SimulatedRunner(1), checkpoint=settings, restore=left)
    assert result.table("out").sort_by("x").equals(ROWS)


def test_show_names_the_job_and_the_checkpoint_that_it_began_from(directory: Path, tmp_path: Path) -> None:
    first = json.loads(_run("show", directory, "1", "--json").stdout)
    settings = flow.Checkpointing(tmp_path / "other", mode="unaligned")
    _numbers().run(checkpoint=settings, restore=directory / "chk-00000001")
    (last,) = flow.DirectoryStore(tmp_path / "other").checkpoints()[-1:]
    printed = _run("show", tmp_path / "other", str(last)).stdout
    assert json.loads(_run("ls", tmp_path / "other", "--json").stdout)[-1]["parent"] == {
        "job": first["job"],
        "checkpoint": 1,
    }
    assert f"| checkpoint 1 of job {first['job']} |" in printed
    assert first["job"] not in printed.split("began from")[0], "a job that begins elsewhere is another one"


def test_rm_counts_the_bytes_that_it_frees(chain: Path) -> None:
    before = _size(chain)
    done = json.loads(_run("rm", chain, "16", "15", "--yes", "--json").stdout)
    assert done["bytes"] == before == sum(one["bytes"] for one in done["deleted"])
    assert [(one["id"], one["kind"], one["status"]) for one in done["deleted"]] == [
        (15, "checkpoint", "whole"),
        (16, "checkpoint", "whole"),
    ]
    assert done["resumes_from"] == {"before": 16, "after": None}
    assert (_size(chain), list(chain.glob("chk-*"))) == (0, [])


def test_rm_says_what_a_job_resumes_from_if_the_newest_is_deleted(chain: Path) -> None:
    assert "newest" not in _run("rm", chain, "15").stdout
    again = unpack(CHAIN, chain.parent / "again") / "ckpt"
    assert "16 was the newest whole one: a job resumes from checkpoint 15, and" in _run("rm", again, "16").stdout


def test_rm_of_the_last_whole_checkpoint_needs_a_yes(chain: Path) -> None:
    _flip(chain / "chk-00000015", "in-*")  # all there, so only reading it finds out
    before = sorted(chain.rglob("chk-*/*"))
    done = _run("rm", chain, "16")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing was deleted: without checkpoint 16 no whole checkpoint is left" in done.stderr
    assert sorted(chain.rglob("chk-*/*")) == before
    assert _run("rm", chain, "16", "--yes").exit_code == 0
    assert flow.DirectoryStore(chain).checkpoints() == [15]


def test_rm_of_a_damaged_checkpoint_needs_no_yes(chain: Path) -> None:
    (chain / "chk-00000016" / "manifest.json").write_text("{}")
    done = _run("rm", chain, "16")
    assert done.stdout.splitlines()[0].startswith("deleted checkpoint 16, damaged: ")
    assert _run("verify", chain).stdout.splitlines()[-1] == "1 verified"


def test_rm_refuses_an_unknown_checkpoint_before_it_deletes_one(chain: Path) -> None:
    before = sorted(chain.rglob("*"))
    done = _run("rm", chain, "15", "10")
    assert (done.exit_code, done.stderr) == (2, f"error: there is no checkpoint 10 in {chain}; there are [15, 16]\n")
    assert sorted(chain.rglob("*")) == before
    assert "found nothing" in _run("rm", chain / "nowhere", "1").stderr
    assert not (chain / "nowhere").exists()


def test_rm_refuses_while_a_job_holds_the_directory(chain: Path) -> None:
    with flow.DirectoryStore(chain):
        done = _run("rm", chain, "15")
    assert done.exit_code == 2
    assert "is in use by process" in done.stderr
    assert flow.DirectoryStore(chain).checkpoints() == [15, 16]


def test_rm_refuses_a_checkpoint_that_is_being_read_and_says_what_it_deleted(chain: Path) -> None:
    with flow.DirectoryStore(chain).folder(16).pin():
        done = _run("rm", chain, "15", "16", "--yes")
    assert done.exit_code == 2
    assert "checkpoint 16 in " in done.stderr
    assert "a restore or a command reads it" in done.stderr
    assert "deleted before: checkpoint 15" in done.stderr
    assert _run("verify", chain).stdout.splitlines()[-1] == "1 verified"


def test_rm_deletes_an_unfinished_checkpoint(chain: Path) -> None:
    with flow.DirectoryStore(chain) as store:
        store.write(17, "in[0]", b"no manifest")
    assert _run("rm", chain, "17").stdout.startswith("deleted checkpoint 17, unfinished: 11 bytes freed\n")
    assert not (chain / "chk-00000017").exists()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("chk-*/*"))


def _flip(folder: Path, pattern: str) -> None:
    """Flip a bit of a file."""
    (path,) = folder.glob(pattern)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_the_legend_calls_a_checkpoint_on_request_a_checkpoint(tmp_path: Path) -> None:
    with flow.Pipeline("endless") as p:
        p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
    with p.start(checkpoint=flow.Checkpointing(tmp_path, every="1h")) as job:
        assert flow.Checkpoint(tmp_path, job.checkpoint()).kind == "checkpoint"
    assert "on request" in LEGEND["kind"].partition("savepoint")[0]
