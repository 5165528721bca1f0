"""How tests are run: the inner loop, the order of files among workers, and the cost of a run beside its budget.

``tiers.toml`` has the paths that the inner loop leaves out, and the budget of the default run in worker-seconds. One is
a second of one pytest process in set-up, call or tear-down of a test. A run over its budget says so and does not fail,
because machines differ.

With workers, tests with Spark are one unit of work, because a session takes longer to start than most tests; it comes
first, and then files in the order of their folders' budgets, so that no long file is begun when others are done.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Costs", "Plugin", "Tiers", "keep_files_in_memory", "longest"]

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes; a default run needs about one GiB."""

SPARK = "tests that share a Spark session"
_WITH_SPARK = re.compile(r"def (test_\w+)\([^)]*\bspark:")


def longest(path: str, prefixes: Iterable[str]) -> str | None:
    """Return the longest of ``prefixes`` that is ``path`` or a folder above it.

    >>> longest("tests/runners/spark/test_kills.py", ["tests", "tests/runners", "tests/run"])
    'tests/runners'
    """
    return max(
        (prefix for prefix in prefixes if path == prefix or path.startswith(f"{prefix}/")), key=len, default=None
    )


class Tiers:
    """What ``tiers.toml`` says.

    >>> tiers = Tiers({"inner-loop": {"without": ["tests/demo"]}, "budget": {"tests": 5, "tests/demo": 10}})
    >>> tiers.is_quick("tests/test_plan.py::test_one"), tiers.is_quick("tests/demo/test_demo.py::test_one")
    (True, False)
    >>> sorted(["tests/test_plan.py::test_one", "tests/demo/test_demo.py::test_one"], key=tiers.order)
    ['tests/demo/test_demo.py::test_one', 'tests/test_plan.py::test_one']
    """

    def __init__(self, read: Mapping[str, Any]) -> None:
        self.budget: Mapping[str, int] = read["budget"]
        self._without: list[str] = read["inner-loop"]["without"]

    @staticmethod
    def read() -> Tiers:
        return Tiers(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))

    def is_quick(self, test: str) -> bool:
        """Return whether the inner loop has a test, unless it is a campaign or needs Spark."""
        return longest(_file(test), self._without) is None

    def unit(self, test: str) -> str:
        """Return the unit of work that a test belongs to. A worker runs the tests of a unit one after the other."""
        file, name = _file(test), test.partition("::")[2].partition("[")[0]
        return SPARK if "spark" in file or name in _tests_with_spark(file) else file

    def order(self, test: str) -> tuple[bool, int, str]:
        """Return the key by which units are sorted. Tests of one unit keep their order."""
        unit = self.unit(test)
        return unit != SPARK, -self.budget.get(longest(unit, self.budget) or "", 0), unit


class Costs:
    """The worker-seconds of a run by folder.

    >>> costs = Costs({"tests": 5, "tests/demo": 10})
    >>> costs.add("tests/demo/test_demo.py::test_one", 12.0)
    >>> costs.add("tests/test_plan.py::test_one", 3.4)
    >>> print(*costs.lines(), sep="\\n")
    worker-seconds  budget
                12      10  tests/demo  (over)
                 3       5  tests
                15      15  in all
    """

    def __init__(self, budget: Mapping[str, int]) -> None:
        self._budget = budget
        self._spent = Counter[str]()

    def add(self, test: str, seconds: float) -> None:
        self._spent[longest(_file(test), self._budget) or "elsewhere"] += seconds

    def lines(self) -> list[str]:
        lines = ["worker-seconds  budget"]
        for folder, seconds in self._spent.most_common():
            allowed = self._budget.get(folder, 0)
            lines.append(f"{seconds:14.0f}  {allowed:6}  {folder}{'  (over)' if seconds > allowed else ''}")
        return [*lines, f"{self._spent.total():14.0f}  {sum(self._budget.values()):6}  in all"]


def _file(test: str) -> str:
    return test.partition("::")[0]


@cache
def _tests_with_spark(file: str) -> frozenset[str]:
    """Return the names of the tests in a file that have the fixture ``spark``; the scheduler knows only names."""
    path = ROOT / file
    return frozenset(_WITH_SPARK.findall(path.read_text(encoding="utf-8")) if path.is_file() else ())


def keep_files_in_memory(config: pytest.Config) -> None:
    """Let ``tmp_path`` lie in memory, where there is room and nothing else was asked for: many tests wait for fsync."""
    asked = config.option.basetemp or {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys()
    if not asked and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


class Plugin:
    """Marks, sorts and counts tests. Registered by ``tests/conftest.py``."""

    def __init__(self, config: pytest.Config) -> None:
        self._tiers = Tiers.read()
        self._costs = Costs(self._tiers.budget)
        self._whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        needs_spark = "spark" in getattr(item, "fixturenames", ())
        if self._tiers.is_quick(item.nodeid) and not needs_spark and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.quick)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            items.sort(key=lambda item: self._tiers.order(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._costs.add(report.nodeid, report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._whole:
            terminalreporter.section("worker-seconds by folder")
            for line in self._costs.lines():
                terminalreporter.write_line(line)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling

        if config.getvalue("dist") != "loadfile":
            return None
        tiers = self._tiers
        config.option.loadscopereorder = False  # else units with many tests would come first

        class Units(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return tiers.unit(nodeid)

        return Units(config, log)
