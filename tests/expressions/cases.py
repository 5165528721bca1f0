"""How an example of what expressions mean is written down: data that any engine can be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

NEW_YORK = ZoneInfo("America/New_York")
Columns = dict[str, tuple[str | pa.DataType, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a filter by the expression leaves of column ``x``."""

    values: list[Any]


@dataclass(frozen=True)
class Case:
    """``text``, evaluated over ``columns`` (a type and values by name), gives ``expected``."""

    line: str
    text: str
    columns: Columns
    expected: list[Any] | Kept | type[Exception]

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


def of(line: str, *cases: tuple[str, Columns, Any]) -> list[Case]:
    return [Case(line, text, columns, expected) for text, columns, expected in cases]


def ints(*values: int | None) -> tuple[str, Sequence[Any]]:
    return "int64", values


def floats(*values: float | None) -> tuple[str, Sequence[Any]]:
    return "float64", values


def texts(*values: str | None) -> tuple[str, Sequence[Any]]:
    return "string", values


def times(*values: datetime | None, unit: str = "us", zone: str | None = None) -> tuple[pa.DataType, Sequence[Any]]:
    return pa.timestamp(unit, zone), values


def clock(*readings: str, zone: ZoneInfo = NEW_YORK) -> list[datetime]:
    """Instants by a zone's clock; a ``*`` behind says the second time that the clock shows it."""
    made = [datetime.fromisoformat(text.rstrip("*")).replace(tzinfo=zone, fold=text.endswith("*")) for text in readings]
    return [instant.astimezone(UTC) for instant in made]
