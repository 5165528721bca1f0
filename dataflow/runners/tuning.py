"""``RunResult.tuning``: what was chosen for a run, by whom, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataflow.contracts.tuning import Choice
from dataflow.planning.graph import Graph
from dataflow.planning.specs import Read
from dataflow.runners.explain_table import Explanation
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.task import Task

__all__ = ["Tuning", "source_choices", "tuning_of"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choices of a run that depend on measurements. ``print`` it for a table; notebooks show it as HTML.

    No answer depends on these choices, but for the rounding of floats that are added in another order. ``choices`` has
    one `Choice` for each thing chosen; subtasks that chose the same are one entry. The kinds are:

    - ``"batch"``: the rows of a source's batches;
    - ``"splits"``: how row groups were put together;
    - ``"pruning"``: the conditions by which row groups are left out;
    - ``"dictionary"``: whether a text column is read as a dictionary, by column;
    - ``"folding"``: whether rows are folded per key before a shuffle;
    - ``"joining"``: small batches that were joined, at a source or in the channels into an operator;
    - ``"polling"``: whether a source was polled at once, or with pauses in which rows gather;
    - ``"loop"``: whether filters and projections were done by a compiled loop;
    - ``"step"``: the time budget of a step;
    - ``"room"``: the bytes that may wait in the channels into a task.

    On Spark there are only those that a source makes before it reads: batch, splits and pruning.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline() as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="in").sink(op.collect(), name="out")
    >>> tuning = p.run(flow.LocalRunner(step_budget="5ms")).tuning
    >>> tuning.of("step")[0].chosen, tuning.of("step")[0].values
    ('5.0 ms', {'short_us': 5000, 'long_us': 5000})
    """

    choices: Sequence[Choice] = ()

    def of(self, kind: str, where: str | None = None) -> Sequence[Choice]:
        """Return the choices of one kind, in the order of the pipeline; none if nothing of this kind was chosen.

        Args:
            kind: such as ``"folding"``; the class lists them.
            where: the name of an operator or source; None: all of them.

        >>> Tuning([Choice("folding", "on", "", where="counts")]).of("folding", "counts")[0].chosen
        'on'
        """
        return [c for c in self.choices if c.kind == kind and where in (None, c.where)]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the choices as JSON values."""
        return [
            {"kind": c.kind, "where": c.where, "part": c.part, "chosen": c.chosen, "why": c.why, "values": c.values}
            for c in self.choices
        ]

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    def __len__(self) -> int:
        return len(self.choices)

    def __str__(self) -> str:
        return str(self._table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._table._repr_html_()

    @property
    def _table(self) -> Explanation:
        rows = [(c.kind, " ".join(filter(None, (c.where, c.part))), c.chosen, c.why) for c in self.choices]
        return Explanation("what was chosen", ("kind", "where", "chosen", "why"), tuple(rows))


def tuning_of(job: Job) -> Tuning:
    """Return the choices of a job. Numbers of a running job are read without locks."""
    reported = [choice for task in job.tasks.values() for choice in _task_choices(task)]
    places = {node.name: place for place, node in enumerate(job.plan.graph)}
    merged = _together([*source_choices(job.plan.graph), *reported, *job.choices])
    return Tuning(sorted(merged, key=lambda choice: places.get(choice.where, len(places))))


def source_choices(graph: Graph) -> list[Choice]:
    """Return what the sources chose before they are read."""
    return [
        replace(choice, where=node.name)
        for node in graph
        if isinstance(node.spec, Read)
        for choice in node.spec.source.choices()
    ]


def _task_choices(task: Task) -> Iterator[Choice]:
    head = task.chain.head.name
    for choice in task.task_input.choices():
        yield replace(choice, where=head)
    for node in task.chain.nodes:
        for choice in node.tally.choices():
            yield replace(choice, where=node.name)


def _together(choices: Iterable[Choice]) -> list[Choice]:
    """Return the choices of all subtasks; those with the same result are one, with the sums of their counts."""
    merged: dict[tuple[str, ...], Choice] = {}
    for choice in choices:
        key = (choice.kind, choice.where, choice.part, choice.chosen)
        other = merged.setdefault(key, choice)
        if other is not choice:
            counts = {name: other.counts.get(name, 0) + count for name, count in choice.counts.items()}
            merged[key] = replace(other, counts=counts)
    return list(merged.values())
