"""Missing loops are compiled by this process and a child, which never outlives its work."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dataflow.kernel_cache import two_processes
from dataflow.kernel_cache.two_processes import Missing, compile_missing

ROOT = Path(__file__).parents[2]
HERE = os.getpid()


class Modules:
    """Modules for this test, with no loops in them: what ``Missing`` says of them counts."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._names: list[str] = []
        self.begun: list[tuple[int, int]] = []
        self.compiled: list[str] = []
        patch.syspath_prepend(folder)

    def add(self, name: str, text: str) -> None:
        """Add a module that runs ``text`` after it has noted the process that imports it."""
        self._names.append(f"{name}_of_a_test")
        note = f"import os\nfrom pathlib import Path\nHERE = {HERE}\nat = Path({str(self.folder)!r})\n"
        note += f"(at / f'{name}.{{os.getpid() == HERE}}').touch()\n"
        (self.folder / f"{self._names[-1]}.py").write_text(note + text)

    def compile(self, stopped: Callable[[], bool] = lambda: False) -> None:
        compile_missing(
            Missing(dict.fromkeys(self._names, 5)),
            begin=lambda missing, processes: self.begun.append((missing.loops, processes)),
            compiled=self.compiled.append,
            stopped=stopped,
        )

    def imported_by(self, name: str, *, child: bool) -> bool:
        return (self.folder / f"{name}.{not child}").exists()

    def in_sys(self) -> list[bool]:
        return [name in sys.modules for name in self._names]

    def forget(self) -> None:
        for name in self._names:
            sys.modules.pop(name, None)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    monkeypatch.setattr(two_processes, "_processors", lambda: 2)
    modules = Modules(tmp_path, monkeypatch)
    yield modules
    modules.forget()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe: opening it for reading waits until a process opens it for writing, and the other way round."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


IN_THE_CHILD = "if os.getpid() != HERE:\n    "
IN_THE_PARENT = "if os.getpid() == HERE:\n    "
WAIT_FOR_THE_CHILD = IN_THE_PARENT + "(at / 'pipe').read_text()\n"
WAKE_THE_PARENT = "(at / 'pipe').write_text('')\n"
SEE_THE_CHILD = IN_THE_PARENT + "import sys; sys.reader_of_a_test = os.open(at / 'pipe', os.O_RDONLY)\n"
HANG = "held = open(at / 'pipe', 'w')\n    import threading; threading.Event().wait()\n"


def test_both_processes_take_modules_and_this_one_has_all_at_the_end(modules: Modules, pipe: Path) -> None:
    modules.add("first", WAIT_FOR_THE_CHILD)
    modules.add("second", IN_THE_CHILD + WAKE_THE_PARENT)
    modules.compile()
    assert modules.begun == [(10, 2)]
    assert modules.in_sys() == [True, True]
    assert sorted(modules.compiled) == ["first_of_a_test", "second_of_a_test"]
    assert modules.imported_by("second", child=True)
    assert not modules.imported_by("first", child=True)


def test_a_child_that_dies_leaves_its_module_to_this_process(modules: Modules, pipe: Path) -> None:
    modules.add("first", WAIT_FOR_THE_CHILD)
    modules.add("second", IN_THE_CHILD + WAKE_THE_PARENT + "    os._exit(1)\n")
    modules.compile()
    assert modules.in_sys() == [True, True]


def test_a_module_that_fails_in_the_child_alone_is_imported_here(modules: Modules, pipe: Path) -> None:
    modules.add("first", WAIT_FOR_THE_CHILD)
    modules.add("second", IN_THE_CHILD + WAKE_THE_PARENT + "    raise ValueError\n")
    modules.compile()
    assert modules.in_sys() == [True, True]


def test_without_a_second_process_this_one_compiles_all(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    modules.add("first", "")
    modules.add("second", "")
    modules.compile()
    assert (modules.begun, modules.in_sys()) == ([(10, 1)], [True, True])


def test_on_one_processor_there_is_no_second_process(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_processes, "_processors", lambda: 1)
    modules.add("first", "")
    modules.add("second", "")
    modules.compile()
    assert modules.begun == [(10, 1)]


@pytest.mark.parametrize(("modules_missing", "loops"), [(1, 20), (2, 5)])
def test_a_second_process_must_be_worth_its_start(
    modules_missing: int, loops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_processes, "_processors", lambda: 2)
    rest = {"b": 1} if modules_missing == 2 else {}
    assert not Missing({"a": loops - len(rest), **rest}).pays


def ended(reader: int) -> bool:
    """Wait until every process that has a pipe open for writing has ended."""
    readable, _, _ = select.select([reader], [], [], 60)
    with os.fdopen(reader, "rb") as file:
        return bool(readable) and file.read() == b""


def test_an_error_ends_the_child(modules: Modules, pipe: Path) -> None:
    modules.add("first", SEE_THE_CHILD + "    raise KeyError('first')\n")
    modules.add("second", IN_THE_CHILD + HANG)
    with pytest.raises(KeyError, match="first"):
        modules.compile()
    assert ended(sys.reader_of_a_test)  # type: ignore[attr-defined]


def test_a_stop_ends_the_child_in_the_middle_of_a_module(modules: Modules, pipe: Path) -> None:
    modules.add("first", SEE_THE_CHILD)
    modules.add("second", IN_THE_CHILD + HANG)
    modules.compile(stopped=lambda: bool(modules.compiled))
    assert modules.in_sys() == [True, False]
    assert ended(sys.reader_of_a_test)  # type: ignore[attr-defined]


PARENT = """
import sys
from dataflow.kernel_cache.two_processes import Missing, compile_missing
from dataflow.kernel_cache import two_processes
two_processes._processors = lambda: 2
names = ("first_of_a_test", "second_of_a_test")
compile_missing(Missing(dict.fromkeys(names, 5)), begin=print, compiled=print)
"""


def test_the_child_ends_when_this_process_is_killed(modules: Modules, pipe: Path) -> None:
    modules.add("first", "import threading; threading.Event().wait()\n")
    modules.add("second", HANG.replace("\n    ", "\n"))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(modules.folder), str(ROOT)])},
    )  # fmt: skip
    reader = os.open(pipe, os.O_RDONLY)  # the child is at work
    parent.kill()
    parent.wait()
    assert ended(reader)
