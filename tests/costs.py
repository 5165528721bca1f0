"""What tests cost, in counts that do not depend on the machine, beside the seconds, which do.

`Counters` counts in one process. The plugin of ``tests/tiers.py`` reads it after each phase of a test, and sends the
difference with the test's report, so the counts of all workers are added up. `Costs` holds them against the budgets of
``tests/tiers.toml``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from numba.core import event

from dataflow.runners.simulated import SimulatedJob
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.task import Task

__all__ = ["KINDS", "Costs", "Counters", "longest"]

KINDS: Final = {
    "queries": "queries and micro-batches of Spark",
    "processes": "child processes",
    "kernels": "compiled kernels",
    "steps": "simulated steps",
    "fsyncs": "files and folders synced",
}
"""The kinds of costs: their names in ``tiers.toml``, and in words."""

_PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty")  # Popen of 3.13 is os.posix_spawn as well
_MOST = 5
"""Tests that a failure names."""


def longest(path: str, prefixes: Iterable[str]) -> str | None:
    """Return the longest of ``prefixes`` that is ``path``, or a folder or file above it.

    >>> longest("tests/runners/spark/test_kills.py::test_one", ["tests", "tests/runners", "tests/run"])
    'tests/runners'
    """
    return max(
        (prefix for prefix in prefixes if path == prefix or path.startswith((f"{prefix}/", f"{prefix}::"))),
        key=len,
        default=None,
    )


class Counters:
    """Counts of this process since they were last taken. Installed once: what it hooks into cannot be unhooked."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._context: Any = None
        self._executions: Callable[[], int] = lambda: 0
        self._executed = 0

    def install(self) -> None:
        """Begin to count."""
        sys.addaudithook(self._heard)
        event.register("numba:compile", _Compilations(self._counts))
        self._count_calls_of_fsync()
        self._count_simulated_steps()

    def take(self) -> dict[str, int]:
        """Return the counts since the last call."""
        self._count_queries()
        counts = {kind: n for kind, n in self._counts.items() if n}
        self._counts.clear()
        return counts

    def _heard(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _PROCESS_EVENTS:
            self._counts["processes"] += 1

    def _count_calls_of_fsync(self) -> None:
        fsync = os.fsync

        def counted(descriptor: Any) -> None:
            self._counts["fsyncs"] += 1
            fsync(descriptor)

        os.fsync = counted

    def _count_simulated_steps(self) -> None:
        step = SimulatedJob._step

        def counted(job: SimulatedJob, task: Task) -> Progress:
            self._counts["steps"] += 1
            return step(job, task)

        SimulatedJob._step = counted  # type: ignore[method-assign]

    def _count_queries(self) -> None:
        """Count what Spark executed, if this process has a session: it numbers queries and micro-batches alike."""
        pyspark = sys.modules.get("pyspark")
        context = pyspark and pyspark.SparkContext._active_spark_context
        if context is not self._context:
            self._context, self._executions = context, _executions(context) if context else lambda: self._executed
        now = self._executions()
        self._counts["queries"] += max(0, now - self._executed)  # another session begins at 0
        self._executed = now


def _executions(context: Any) -> Callable[[], int]:
    """Return a function that reads how many executions Spark began; no other place is up to date at any time."""
    owner = getattr(getattr(context._jvm, "org.apache.spark.sql.execution.SQLExecution$"), "MODULE$")
    field = owner.getClass().getDeclaredField("_nextExecutionId")
    field.setAccessible(True)
    return lambda: int(field.get(owner))


class _Compilations(event.Listener):
    """Listens to numba, which says when it compiles; what is read from the cache is not compiled."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def on_start(self, event: Any) -> None:
        self._counts["kernels"] += 1

    def on_end(self, event: Any) -> None: ...


class Costs:
    """The costs of a run by folder, beside the budgets of its tier.

    >>> costs = Costs({"tests": {"seconds": 5}, "tests/demo": {"seconds": 10, "steps": 7, "fsyncs": 2}})
    >>> costs.add("tests/demo/test_demo.py::test_one", 12.0, {"steps": 5})
    >>> costs.add("tests/demo/test_demo.py::test_two", 1.0, {"steps": 4, "fsyncs": 1})
    >>> costs.add("tests/test_plan.py::test_one", 3.4, {})
    >>> print(*costs.lines(), sep="\\n")
     seconds  queries  processes  kernels  steps  fsyncs
       13/10        0          0        0    9/7     1/2  tests/demo
         3/5        0          0        0      0       0  tests
       16/15        0          0        0      9       1  in all
    >>> print(*costs.overruns(), sep="\\n")
    tests/demo: 9 simulated steps, the budget is 7; most in tests/demo/test_demo.py::test_one (5), \
tests/demo/test_demo.py::test_two (4)
    """

    def __init__(self, budgets: Mapping[str, Mapping[str, int]]) -> None:
        self._budgets = budgets
        self._seconds = Counter[str]()
        self._counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # by folder and kind: of tests

    def add(self, test: str, seconds: float, counts: Mapping[str, int]) -> None:
        """Add one phase of a test."""
        folder = longest(test, self._budgets) or "elsewhere"
        self._seconds[folder] += seconds
        for kind, n in counts.items():
            self._counts[folder, kind][test] += n

    def overruns(self) -> list[str]:
        """Return a line for each count above its budget, with the tests that cost most."""
        lines = []
        for folder, budget in self._budgets.items():
            for kind, words in KINDS.items():
                tests = self._counts[folder, kind]
                if kind in budget and tests.total() > budget[kind]:
                    most = ", ".join(f"{test} ({n})" for test, n in tests.most_common(_MOST))
                    lines.append(f"{folder}: {tests.total()} {words}, the budget is {budget[kind]}; most in {most}")
        return lines

    def lines(self) -> list[str]:
        """Return a table: what each folder cost, and after a slash what it may."""
        widths = {"seconds": 8, **{kind: max(7, len(kind) + 2) for kind in KINDS}}
        lines = ["".join(f"{kind:>{width}}" for kind, width in widths.items())]
        for folder, seconds in self._seconds.most_common():
            budget = self._budgets.get(folder, {})
            spent = {"seconds": round(seconds), **{kind: self._counts[folder, kind].total() for kind in KINDS}}
            cells = [f"{n}/{budget[kind]}" if kind in budget and n else str(n) for kind, n in spent.items()]
            lines.append(_row(cells, widths.values(), folder))
        allowed = sum(budget.get("seconds", 0) for budget in self._budgets.values())
        totals = [f"{round(self._seconds.total())}/{allowed}", *(str(self._total(kind)) for kind in KINDS)]
        return [*lines, _row(totals, widths.values(), "in all")]

    def _total(self, kind: str) -> int:
        return sum(tests.total() for (_, of), tests in self._counts.items() if of == kind)


def _row(cells: Iterable[str], widths: Iterable[int], name: str) -> str:
    return "".join(f"  {cell:>{width - 2}}" for cell, width in zip(cells, widths, strict=True)) + f"  {name}"
