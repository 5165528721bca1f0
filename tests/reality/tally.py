"""Counts over many kills, one column a mode: where they landed, what was in progress, what the restores put back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.reality.child import ROWS, TOTALS
from tests.reality.harness import Story
from tests.reality.remains import Commit, Landing, Remains, Writing


@dataclass
class Tally:
    """The kills of one mode and the restores after them; ``in_flight``: the rows each restore put back in flight.

    Rows in flight are shown by the operators ``heads``, and duplicates by the operators ``reporting``.
    """

    heads: Sequence[str] = ("slow rows", ROWS, TOTALS)
    reporting: Sequence[str] = (ROWS, TOTALS)
    jobs: int = 0
    tasks: int = 0
    kills: list[Remains] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    waiting_for: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)

    def add(self, story: Story) -> None:
        self.jobs += 1
        self.tasks = story.tasks
        self.kills += story.kills
        for restore in story.restores:
            self.in_flight.append(sum(restore["in_flight"].values()))
            self.waiting_for.update(restore["in_flight"])
        for operator in self.reporting:
            self.reported[operator] += story.reported(operator).num_rows

    @property
    def landings(self) -> Counter[Landing]:
        return Counter(kill.landing for kill in self.kills)

    @property
    def restores_in_flight(self) -> int:
        """Restores that put rows back in flight."""
        return sum(rows > 0 for rows in self.in_flight)

    def lines(self) -> dict[str, str]:
        """What to print, by heading."""
        parts = Counter(kill.parts for kill in self.kills)
        commits = Counter(kill.commit for kill in self.kills)
        writing = Counter(file for kill in self.kills for file in set(kill.writing))
        found: dict[str, object] = {"kills": len(self.kills), "  of jobs": self.jobs}
        found |= {landing.value: self.landings[landing] for landing in Landing}
        found[f"parts whole, of {self.tasks}: 0, 1, ..."] = " ".join(str(parts[k]) for k in range(self.tasks + 1))
        found |= {f"commit cut short: {commit.value}": commits[commit] for commit in Commit}
        found |= {f"being written: {_WRITING[file]}": writing[file] for file in Writing}
        found["an older checkpoint being deleted"] = sum(kill.cleaning for kill in self.kills)
        found["sink files staged"] = sum(kill.staged for kill in self.kills)
        found["  by kills"] = sum(kill.staged > 0 for kill in self.kills)
        found["restores"] = len(self.in_flight)
        found["  with rows in flight"] = self.restores_in_flight
        found["rows put back in flight"] = sum(self.in_flight)
        found |= {f"  before {head!r}": self.waiting_for[head] for head in self.heads}
        found |= {f"duplicates reported at {operator!r}": self.reported[operator] for operator in self.reporting}
        return {heading: f"{value:,}" if isinstance(value, int) else str(value) for heading, value in found.items()}


_WRITING = {
    Writing.PART: "a part",
    Writing.MANIFEST: "a manifest",
    Writing.COMMIT_LIST: "a commit list",
    Writing.OTHER: "another file",
}


def table(tallies: Mapping[str, Tally]) -> str:
    """One column a mode."""
    columns = {mode: tally.lines() for mode, tally in tallies.items()}
    headings = list(dict.fromkeys(heading for lines in columns.values() for heading in lines))
    left = max(map(len, headings))
    widths = {mode: max(len(mode), *map(len, lines.values())) for mode, lines in columns.items()}
    rows = [" " * left + "".join(f"  {mode:>{widths[mode]}}" for mode in columns)]
    for heading in headings:
        cells = (f"  {lines.get(heading, '-'):>{widths[mode]}}" for mode, lines in columns.items())
        rows.append(f"{heading:<{left}}" + "".join(cells))
    return "\n".join(rows)
