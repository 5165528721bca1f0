"""What the README and the docs say is true: their code runs, prints what they show, and their commands exist."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Any
from xml.etree import ElementTree

import pytest

import dataflow
import operators
from dataflow.contracts.checkpointing import Mode
from dataflow.runtime.restore.report import RestoreReport
from tests.documents import ROOT, blocks, run_python
from tests.seeds import in_extended

README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *GUIDES]
ON_SPARK = [
    path
    for path in DOCUMENTS
    if any(word in path.read_text(encoding="utf-8") for word in ("SparkSession.builder", 'run("spark"'))
]
ALONE = [path for path in DOCUMENTS if path not in ON_SPARK]
LONG = ("checkpoint-predicates.md", "nexmark.md", "pipeline-that-grows.md")
"""Guides that take some seconds, of pipelines that have tests of their own."""
LANGUAGES = {"python", "text", "console", "layout", "report", "dockerfile"}
DIRECTIVES = {"{toctree}", "{include}", "{literalinclude}"}
TEXT = README.read_text(encoding="utf-8")


def guide(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands(*documents: Path) -> list[str]:
    """Return every line of the console blocks of these documents."""
    found = [block for document in documents for block in blocks(document) if block.language == "console"]
    return [line for block in found for line in block.text.splitlines()]


def run(*arguments: str) -> str:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(arguments, cwd=ROOT, env=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_blocks(document: Path) -> None:
    for block, printed, expected in run_python(document):
        assert printed == (expected or ""), f"{document.name}:{block.line} printed:\n{printed}"


@pytest.mark.parametrize(
    "document",
    [path for path in ALONE if path.name not in LONG] + in_extended(*(path for path in ALONE if path.name in LONG)),
    ids=lambda path: path.name,
)
def test_every_python_block_runs_and_prints_what_it_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(document)


@pytest.mark.extended
@pytest.mark.parametrize("document", ON_SPARK, ids=lambda path: path.name)
def test_every_python_block_on_spark_runs_and_prints_what_it_says(document: Path, tmp_path: Path, spark: Any) -> None:
    with contextlib.chdir(tmp_path):  # after the session has started its processes in the directory of the tests
        run_blocks(document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_text_block_is_the_output_of_the_python_block_before_it(document: Path) -> None:
    found = blocks(document)
    assert {block.language for block in found} <= LANGUAGES | DIRECTIVES
    for before, block in zip([None, *found], found, strict=False):
        if block.language == "text":
            assert before, f"{document.name}:{block.line}"
            assert before.language == "python", f"{document.name}:{block.line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


INCLUDED = re.compile(r"^```\{literalinclude\} (\S+)\n(?::language: python\n)?:pyobject: (\w+)\n```$", re.MULTILINE)


def included_functions(document: Path) -> list[tuple[str, str]]:
    """Return the path and the name of each function that ``document`` includes from a file of code."""
    return INCLUDED.findall(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_included_function_exists(document: Path) -> None:
    found = included_functions(document)
    assert len(found) == sum(block.language == "{literalinclude}" for block in blocks(document))
    for path, name in found:
        tree = ast.parse((document.parent / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}: {name}"


def test_every_nexmark_query_is_shown() -> None:
    shown = {name for _, name in included_functions(ROOT / "docs/nexmark.md")}
    assert {f"q{number}" for number in range(24)} <= shown


def test_directives_are_not_code_and_no_fence_hides_a_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```{toctree}\n:maxdepth: 1\n\nfirst\n```\n\n```python\nprint(1)\n```\n", encoding="utf-8")
    assert [block.language for block in blocks(page)] == ["{toctree}", "python"]
    for hidden in ("- item\n  ```python\n  x\n  ```\n", "~~~python\nx\n~~~\n", "````python\nx\n````\n", "```python\n"):
        page.write_text(hidden, encoding="utf-8")
        with pytest.raises(ValueError, match="fences"):
            blocks(page)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_has_a_text(document: Path) -> None:
    assert "[](" not in document.read_text(encoding="utf-8"), (
        "Sphinx would insert the title; other viewers show nothing"
    )


def test_the_readme_is_short() -> None:
    assert README.stat().st_size <= 10_240


def test_the_readme_opens_with_one_sentence_and_a_picture() -> None:
    title, sentence, picture = TEXT.split("\n\n")[:3]
    assert title == "# barrierflow"
    assert sentence.count(".") == 1
    assert picture.startswith("![")


def test_the_picture_is_well_formed() -> None:
    root = ElementTree.parse(ROOT / "docs/barriers.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (extraction,) = re.findall(r"\$\((sed .*README\.md)\)", script)
    assert run("bash", "-c", extraction) == "pip install -e '.[test]' && pytest -n 2 --dist loadfile\n"
    assert re.search(r'^run "default tier" \d+ "\$tests"$', script, re.MULTILINE)
    assert re.search(r'^run "extended tier" \d+ "\$pytest -m extended"$', script, re.MULTILINE)


def test_ci_refuses_an_old_python_and_says_so(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\ncase $1 in --version) echo Python 3.9.1;; *) exit 1;; esac\n", encoding="utf-8")
    old.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(old)}
    done = subprocess.run(["bash", ".ci/run"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "Python 3.9.1" in done.stderr


def test_the_script_is_executable_and_parses() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    run("bash", "-n", ".ci/run")


def test_the_extras_of_the_commands_exist() -> None:
    lines = commands(*DOCUMENTS)
    extras = {extra for line in lines for extra in re.findall(r"(?:\.|barrierflow)\[(\w+)\]", line)}
    assert {"demo", "test", "docs", "spark"} <= extras
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in declared for extra in extras)


PYTEST_LINES = [line for line in dict.fromkeys(commands(*DOCUMENTS)) if "pytest " in line and "pip" not in line]

COLLECT = """
import json, sys
import pytest

class Selected:
    def pytest_collection_finish(self, session):
        self.count = len(session.items)

counts = []
for arguments in json.loads(sys.argv[1]):
    selected = Selected()
    assert pytest.main(["--collect-only", "-q", *arguments], plugins=[selected]) == 0, arguments
    counts.append(selected.count)
print(json.dumps(counts))
"""
"""Collects for several command lines in one process, which imports the modules of the tests once."""


@pytest.fixture(scope="module")
def selected() -> Mapping[str, int]:
    """The number of tests that each command line selects."""
    commands = []
    for line in PYTEST_LINES:
        words = [word for word in shlex.split(line) if not re.match("[A-Z_]+=", word) and word != "pytest"]
        part = [] if any((ROOT / word).exists() for word in words) else ["tests/simulation"]  # all would take long
        commands.append([*words, *part])
    counts = json.loads(run(sys.executable, "-c", COLLECT, json.dumps(commands)).splitlines()[-1])
    return dict(zip(PYTEST_LINES, counts, strict=True))


@pytest.mark.parametrize("line", PYTEST_LINES)
def test_the_pytest_commands_select_something(line: str, selected: Mapping[str, int]) -> None:
    assert selected[line] > 0


def test_the_main_job_has_a_command_line_of_its_own() -> None:
    assert sum(line.endswith("&& barrierflow demo") for line in commands(README)) == 1


@pytest.mark.parametrize("command", ["demo", "compare", "checkpoints"])
def test_the_commands_of_the_readme_exist(command: str) -> None:
    assert f"barrierflow {command}" in TEXT
    assert "Usage" in run(sys.executable, "-m", "dataflow", command, "--help")


def test_every_mode_stands_in_the_table_with_its_guarantee() -> None:
    for mode, text in product(Mode, [TEXT, guide("checkpoints-and-modes.md")]):
        (row,) = re.findall(rf'^\| `"{mode.value}"` .*$', text, re.MULTILINE)
        assert f"| {mode.guarantee.value} |" in row
        assert "planned" not in row


def test_the_report_that_is_shown_has_the_sections_of_a_real_one() -> None:
    (shown,) = [block.text for block in blocks(ROOT / "docs/stop-and-restore.md") if block.language == "report"]
    real = str(RestoreReport(3, "memory", Mode.UNALIGNED, finished=False, offsets={"a/b": 1}, duration=0))
    assert re.findall(r"^  (\w.*?)  ", shown, re.MULTILINE) == re.findall(r"^  (\w.*?)  ", real, re.MULTILINE)
    assert shown.splitlines()[0] == real.splitlines()[0]


def table_of_the_api() -> dict[str, set[str]]:
    """Return what the API table has in code font, by row; only the part before a parenthesis."""
    found = {}
    for row in re.findall(r"^\| (\w+) \| (.*) \|$", guide("api-overview.md"), re.MULTILINE):
        found[row[0]] = {code.partition("(")[0] for code in re.findall(r"`([^`]+)`", row[1])}
    return found


def missing(names: Iterable[str], *owners: object) -> list[str]:
    return sorted(n for n in names if n.startswith(".") and not any(hasattr(o, n[1:]) for o in owners))


def test_the_api_table_names_only_what_exists() -> None:
    table = table_of_the_api()
    assert missing(table["build"], dataflow.Pipeline, dataflow.Stream, dataflow.KeyedStream) == []
    assert missing(table["expressions"], dataflow.Expr) == []
    assert missing(table["run"], dataflow.LocalJob, dataflow.Pipeline) == []
    fields = set(dataflow.RunResult.__dataclass_fields__)
    assert [n for n in missing(table["results"], dataflow.RunResult) if n[1:] not in fields] == []
    shown = {name[3:] for row in table.values() for name in row if name.startswith("op.")}
    assert shown <= set(operators.__all__)
    assert shown >= set(operators.__all__) - {"read_committed", "committed_files"}


def test_the_files_that_decisions_name_exist() -> None:
    part = guide("how-it-works.md").partition("## Decisions")[2]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", part)
    assert len(named) > 10
    assert [name for name in named if not any((ROOT / top / name).exists() for top in ("dataflow", ""))] == []


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.rst"))
    described = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", pages, re.MULTILINE))
    names = [name for name in [*dataflow.__all__, *operators.__all__] if name != "__version__"]
    assert [name for name in names if name not in described and f"dataflow.{name}" not in described] == []


def described_members() -> Iterator[str]:
    """Yield each method and property with a docstring, at the public class that users get it from."""
    classes = {name: value for name in dataflow.__all__ if isinstance(value := getattr(dataflow, name), type)}
    for name, cls in classes.items():
        inherited = {member for base in cls.__mro__[1:] if base in classes.values() for member in dir(base)}
        for member in set(dir(cls)) - inherited:
            value = getattr(cls, member)
            if not member.startswith("_") and isinstance(value, FunctionType | property) and value.__doc__:
                yield f"dataflow.{name}.{member}"


@pytest.mark.docs
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    (command,) = (line for line in commands(ROOT / "CONTRIBUTING.md") if "sphinx" in line)
    *build, target = shlex.split(command)
    assert build[0] == "python"
    assert target == "build/docs"
    run(sys.executable, *build[1:], str(tmp_path))
    inventory = (tmp_path / "objects.inv").read_bytes().split(b"\n", 4)[4]
    described = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    assert sorted(set(described_members()) - described) == []
