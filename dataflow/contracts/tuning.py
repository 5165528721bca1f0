"""One choice that the engine, a source or an operator made because of what it measured.

``RunResult.tuning`` shows the choices of a run. An operator or a reader reports one with ``RowTally.report``, a source
with ``Source.choices``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice that no answer depends on, and its reason.

    Attributes:
        kind: what was chosen, such as ``"folding"``.
        chosen: the result, such as ``"off"``.
        reason: why, as text in which ``{name}`` stands for an entry of ``counts`` or ``settings``.
        counts: what was measured; over several subtasks, the sums.
        settings: numbers that are the same in every subtask.
        part: the column, if the choice is about one.
        where: the operator or source; the engine sets it.

    >>> Choice("folding", "off", "{rows:,} rows gave {records:,} records", {"rows": 8000, "records": 7000}).why
    '8,000 rows gave 7,000 records'
    """

    kind: str
    chosen: str
    reason: str
    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    part: str = ""
    where: str = ""

    @property
    def why(self) -> str:
        """The reason, with the numbers."""
        return self.reason.format(**{**self.settings, **self.counts})

    @property
    def values(self) -> Mapping[str, int]:
        """The settings and the counts, by name."""
        return {**self.settings, **self.counts}
