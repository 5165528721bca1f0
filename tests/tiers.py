"""How tests are run: which tier has a test, the order of files among workers, and what a run costs.

``tiers.toml`` has the paths of the tiers and the budgets. A test is in one tier: *default*, unless a marker, a
parameter (`tests/seeds.py`) or a path of ``tiers.toml`` says *extended*, *soak* or *docs*. A path speaks of the tests
below it that have no such marker. The inner loop, *quick*, is a part of the default tier.

With workers, tests with Spark are one unit of work, because a session takes longer to start than most tests; it comes
first, and then files in the order of their folders' seconds, so that no long file is begun when others are done.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.costs import Costs, Counters, longest

__all__ = ["DEFAULT", "EXTENDED", "TIERS", "Plugin", "Tiers", "keep_files_in_memory"]

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes; a default run needs about one GiB."""

TIERS: Final = ("extended", "soak", "docs")
"""Markers of the tiers besides the default one."""
DEFAULT: Final = "not soak and not docs and not extended"
"""The marker expression of the default tier, in ``pyproject.toml``."""
EXTENDED: Final = "extended"
"""The marker expression of the extended tier."""

SPARK = "tests that share a Spark session"
_WITH_SPARK = re.compile(r"def (test_\w+)\([^)]*\bspark:")


class Tiers:
    """What ``tiers.toml`` says.

    >>> tiers = Tiers({
    ...     "quick": {"without": ["tests/demo"]},
    ...     "extended": {
    ...         "paths": ["tests/demo/test_all.py::test_two"],
    ...         "all_but_the_first": ["tests/test_a.py::test_b"],
    ...     },
    ...     "budget": {"default": {"tests": {"seconds": 5}, "tests/demo": {"seconds": 10}}, "extended": {}},
    ... })
    >>> tiers.is_quick("tests/test_plan.py::test_one"), tiers.is_quick("tests/demo/test_demo.py::test_one")
    (True, False)
    >>> [tiers.of_path(f"tests/demo/test_all.py::{test}") for test in ("test_one", "test_two", "test_two[3-a]")]
    [None, 'extended', 'extended']
    >>> [tiers.of_path(f"tests/test_a.py::test_b[{case}]") for case in (0, 1, 2, 0)]
    [None, 'extended', 'extended', None]
    >>> sorted(["tests/test_plan.py::test_one", "tests/demo/test_demo.py::test_one"], key=tiers.order)
    ['tests/demo/test_demo.py::test_one', 'tests/test_plan.py::test_one']
    """

    def __init__(self, read: Mapping[str, Any]) -> None:
        self.budgets: Mapping[str, Mapping[str, Mapping[str, int]]] = read["budget"]
        self.quick_without: list[str] = read["quick"]["without"]
        self.extended: list[str] = read["extended"]["paths"]
        self.all_but_the_first: list[str] = read["extended"]["all_but_the_first"]
        self._first: dict[str, str] = {}

    @staticmethod
    def read() -> Tiers:
        return Tiers(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))

    def is_quick(self, test: str) -> bool:
        """Return whether the inner loop has a test of the default tier, unless it needs Spark."""
        return longest(test, self.quick_without) is None

    def of_path(self, test: str) -> str | None:
        """Return the tier to which a path gives a test that has no marker of a tier; None: the default one.

        The first case of a test is the one that is asked for first, which is the first one that is collected.
        """
        function = test.partition("[")[0]
        if longest(function, self.extended):
            return EXTENDED
        rest = function in self.all_but_the_first and self._first.setdefault(function, test) != test
        return EXTENDED if rest else None

    def tier_of(self, test: str, markers: Sequence[str]) -> str | None:
        """Return the tier of a test that has these markers.

        Returns: the marker of the tier; None: the default tier.

        Raises: pytest.UsageError if two markers contradict each other.
        """
        marked = [tier for tier in TIERS if tier in markers]
        if len(marked) > 1:
            raise pytest.UsageError(
                f"{test} is in two tiers, {' and '.join(marked)}; take away one of the markers, or give the "
                "combination of parameters one tier (tests/seeds.py)"
            )
        return marked[0] if marked else self.of_path(test)

    def unit(self, test: str) -> str:
        """Return the unit of work that a test belongs to. A worker runs the tests of a unit one after the other."""
        file, name = _file(test), test.partition("::")[2].partition("[")[0]
        return SPARK if "spark" in file or name in _tests_with_spark(file) else file

    def order(self, test: str) -> tuple[bool, int, str]:
        """Return the key by which units are sorted. Tests of one unit keep their order."""
        unit = self.unit(test)
        seconds = self.budgets["default"].get(longest(unit, self.budgets["default"]) or "", {}).get("seconds", 0)
        return unit != SPARK, -seconds, unit


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

    def __init__(self, config: pytest.Config, counters: Counters) -> None:
        self._tiers = Tiers.read()
        self._counters = counters
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        self._whole = {DEFAULT: "default", EXTENDED: "extended"}.get(config.option.markexpr) if whole else None
        self._costs = Costs(self._tiers.budgets.get(self._whole or "", {}))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        markers = [mark.name for mark in item.iter_markers()]
        tier = self._tiers.tier_of(item.nodeid, markers)
        needs_spark = "spark" in getattr(item, "fixturenames", ())
        if tier is None and not needs_spark and self._tiers.is_quick(item.nodeid):
            item.add_marker(pytest.mark.quick)
        if tier == EXTENDED and EXTENDED not in markers:
            item.add_marker(pytest.mark.extended)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            items.sort(key=lambda item: self._tiers.order(item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        report.costs = self._counters.take()  # travels to the process that reports
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._costs.add(report.nodeid, report.duration, getattr(report, "costs", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run over a budget. A worker has only a part of the counts, and leaves that to the main process."""
        if session.exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if self._costs.overruns() else pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._whole is None:
            return
        terminalreporter.section(f"costs of the {self._whole} tier, and budgets of tests/tiers.toml")
        for line in self._costs.lines():
            terminalreporter.write_line(line)
        for line in self._costs.overruns():
            terminalreporter.write_line(f"over the budget: {line}", red=True)
        if self._costs.overruns():
            terminalreporter.write_line(
                "make these tests cheaper, or raise the number in tests/tiers.toml and say why in the commit"
            )

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
