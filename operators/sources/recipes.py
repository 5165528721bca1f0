"""Columns of generated data: each value is a function of the seed, the column's name and the number of its row.

So rows do not depend on how they are cut into batches, which columns are made, and where reading begins. Random bits
are those of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), which is a hash
of a counter, here of the row number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from dataflow.arrow_values import to_array
from dataflow.clock import Duration, microseconds
from dataflow.errors import ConfigurationError

__all__ = [
    "Draws",
    "Recipe",
    "choice",
    "event_times",
    "integers",
    "normal",
    "rate_of",
    "sequence",
    "uniform",
]

Bits = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_PERIODS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}


def rate_of(text: object, what: str) -> Fraction:
    """Return the rows per microsecond of a rate such as ``"10000/s"``. Raises: ConfigurationError for anything else.

    >>> rate_of("10_000/s", "rate=") == rate_of("10/ms", "rate=") == Fraction(1, 100)
    True
    """
    if isinstance(text, str):
        count, _, period = (part.strip() for part in text.partition("/"))
        try:
            rate = Fraction(count) / _PERIODS[period]
        except (KeyError, ValueError, ZeroDivisionError):
            rate = Fraction(0)
        if rate > 0:
            return rate
    raise ConfigurationError(f"{what} must be rows per time, such as '10000/s', '5/ms' or '30/min', got {text!r}")


@dataclass(frozen=True, slots=True)
class Draws:
    """The input of a recipe: ``rows``, the numbers of the rows, and pseudorandom values for them.

    >>> draws = Draws(np.arange(3), seed=1, column="price")
    >>> draws.bits()[2] == Draws(np.array([2]), seed=1, column="price").bits()[0]
    np.True_
    """

    rows: npt.NDArray[np.int64]
    seed: int
    column: str

    def bits(self, stream: str = "") -> Bits:
        """Return 64 random bits for each row; each ``stream`` is independent."""
        key = np.uint64(xxhash.xxh3_64_intdigest(f"{self.seed}/{self.column}/{stream}".encode()))
        z = self.rows.astype(np.uint64) * _GOLDEN  # wraps, as it must
        z += key
        z ^= z >> np.uint64(30)
        z *= _FIRST
        z ^= z >> np.uint64(27)
        z *= _SECOND
        z ^= z >> np.uint64(31)
        return z

    def uniform(self, stream: str = "") -> npt.NDArray[np.float64]:
        """Return a number in [0, 1) for each row, of 53 random bits."""
        return (self.bits(stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Recipe(ABC):
    """How a column is made. Subclass it for your own recipes; two different recipes must have different ``repr``."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The column's type."""

    @abstractmethod
    def column(self, draws: Draws) -> pa.Array:
        """Return a value for each of ``draws.rows``; it must depend on ``draws`` only, row by row.

        Args:
            draws: the row numbers of a batch, and the random bits of each row.

        Returns: an array of ``type``, with one value a row.

        Raises: ConfigurationError if a row has no value of this type, because it would exceed 64 bits.
        """


@dataclass(frozen=True)
class sequence(Recipe):  # noqa: N801 - users call it like a function, as the others below
    """The numbers ``start``, ``start + step``, ... over all splits together, as int64.

    >>> sequence(10).column(Draws(np.arange(3), 0, "id")).to_pylist()
    [10, 11, 12]
    """

    start: int = 0
    step: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.int64()

    def column(self, draws: Draws) -> pa.Array:
        """Return ``start + step * row`` for each row number.

        Args:
            draws: the row numbers of a batch, and the random bits of each row.

        Raises: ConfigurationError if a number exceeds 64 bits.

        >>> sequence(start=10, step=5).column(Draws(np.array([0, 1, 7]), seed=0, column="id")).to_pylist()
        [10, 15, 45]
        """
        last = self.start + self.step * int(draws.rows.max(initial=0))
        if not -(2**63) <= last < 2**63:
            raise ConfigurationError(
                f"op.sequence: {self!r} leaves 64 bits before it comes to {last:,}; take a smaller step"
            )
        return to_array(self.start + self.step * draws.rows)


@dataclass(frozen=True)
class integers(Recipe):  # noqa: N801
    """Whole numbers from ``low`` to below ``high``, all equally likely, as int64.

    >>> integers(5, 6).column(Draws(np.arange(3), 0, "k")).to_pylist()
    [5, 5, 5]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not -(2**63) <= self.low < self.high <= 2**63 - 1:
            raise ConfigurationError(f"op.integers: expected low < high within 64 bits, got {self.low} and {self.high}")

    @property
    def type(self) -> pa.DataType:
        return pa.int64()

    def column(self, draws: Draws) -> pa.Array:
        """Return a number from ``low`` to below ``high`` for each row.

        Args:
            draws: the row numbers of a batch, and the random bits of each row.

        >>> integers(1, 7).column(Draws(np.arange(4), seed=0, column="k")).to_pylist()
        [1, 5, 2, 3]
        """
        return to_array((draws.bits() % np.uint64(self.high - self.low)).view(np.int64) + np.int64(self.low))


@dataclass(frozen=True)
class uniform(Recipe):  # noqa: N801
    """Numbers from ``low`` to below ``high``, all equally likely, as float64.

    >>> uniform(1, 2).type
    DataType(double)
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high):
            raise ConfigurationError(f"op.uniform: expected low < high, both finite, got {self.low} and {self.high}")

    @property
    def type(self) -> pa.DataType:
        return pa.float64()

    def column(self, draws: Draws) -> pa.Array:
        """Return a number from ``low`` to below ``high`` for each row.

        Args:
            draws: the row numbers of a batch, and the random bits of each row.

        >>> [round(x, 3) for x in uniform(0, 10).column(Draws(np.arange(3), seed=0, column="k")).to_pylist()]
        [9.427, 7.567, 7.23]
        """
        return to_array(self.low + (self.high - self.low) * draws.uniform())


@dataclass(frozen=True)
class normal(Recipe):  # noqa: N801
    """Normally distributed numbers, as float64 (Box-Muller transform).

    >>> normal(mean=3.0, deviation=0.0).column(Draws(np.arange(2), 0, "x")).to_pylist()
    [3.0, 3.0]
    """

    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 <= self.deviation < math.inf):
            raise ConfigurationError(f"op.normal: expected finite mean and deviation >= 0, got {self}")

    @property
    def type(self) -> pa.DataType:
        return pa.float64()

    def column(self, draws: Draws) -> pa.Array:
        """Return a normally distributed number for each row.

        Args:
            draws: the row numbers of a batch, and the random bits of each row.

        >>> [round(x, 3) for x in normal(170, 10).column(Draws(np.arange(3), seed=0, column="k")).to_pylist()]
        [171.348, 181.292, 172.52]
        """
        radius = np.sqrt(-2.0 * np.log1p(-draws.uniform("radius")))
        return to_array(self.mean + self.deviation * radius * np.cos(2.0 * np.pi * draws.uniform("angle")))


@dataclass(frozen=True)
class _Choice(Recipe):
    values: tuple[Any, ...]
    weights: tuple[float, ...] | None

    @cached_property
    def _array(self) -> pa.Array:
        return to_array(self.values)

    @property
    def type(self) -> pa.DataType:
        return self._array.type

    def column(self, draws: Draws) -> pa.Array:
        if self.weights is None:
            chosen = (draws.bits() % np.uint64(len(self.values))).view(np.int64)
        else:
            bounds = np.cumsum(self.weights)
            chosen = np.searchsorted(bounds, draws.uniform() * bounds[-1], side="right")
            chosen = np.minimum(chosen, len(bounds) - 1)  # a product may be rounded up to the last bound
        return self._array.take(to_array(chosen))


def choice(values: Sequence[Any], weights: Sequence[float] | None = None) -> Recipe:
    """Return a recipe that chooses one of ``values``, all equally likely without ``weights``; None makes nulls.

    Args:
        values: plain values of one type, and None.
        weights: for each value a number of at least 0; a value is chosen in proportion to its weight.

    Raises: ConfigurationError if there is no value, the values have several types, or the weights do not fit them.

    >>> choice(["a", "b", None], weights=[8, 1, 1]).type
    DataType(string)
    """
    try:
        array = to_array(values)
    except (pa.ArrowException, TypeError) as error:
        raise ConfigurationError(f"op.choice: values must be a list of one type, got {values!r}: {error}") from error
    if not len(array):
        raise ConfigurationError("op.choice: give at least one value")
    if weights is not None and (
        len(weights) != len(array) or not all(0 <= w < math.inf for w in weights) or not sum(weights) > 0
    ):
        raise ConfigurationError(f"op.choice: {len(array)} values need {len(array)} weights >= 0, got {weights!r}")
    return _Choice(tuple(values), None if weights is None else tuple(map(float, weights)))


@dataclass(frozen=True)
class _EventTimes(Recipe):
    start: int
    rate: Fraction
    disorder: int
    zone: str | None

    @property
    def type(self) -> pa.DataType:
        return pa.timestamp("us", self.zone)

    def column(self, draws: Draws) -> pa.Array:
        times = self.start + self._after(draws.rows)
        if self.disorder:
            times -= (draws.bits() % np.uint64(self.disorder + 1)).view(np.int64)
        return to_array(times).cast(self.type)

    def _after(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the microseconds between ``start`` and each row."""
        duration, count = self.rate.denominator, self.rate.numerator
        if not rows.size or int(rows.max()) * duration <= np.iinfo(np.int64).max:
            return rows * duration // count
        exact = [row * duration // count for row in rows.tolist()]  # the product has no room in 64 bits
        if max(exact) > np.iinfo(np.int64).max - abs(self.start):
            raise ConfigurationError(
                f"op.event_times: row {int(rows.max()):,} would be {max(exact):,} us after the start, beyond the times "
                "that 64 bits hold; give a higher rate="
            )
        return np.array(exact, np.int64)


def event_times(start: datetime | str = "2026-01-01", *, rate: str = "1000/s", disorder: Duration = "0s") -> Recipe:
    """Return a recipe for times that advance from ``start`` by ``rate``, each moved back by up to ``disorder``.

    So with a watermark delay of ``disorder`` no row is late. When rows are emitted does not depend on these times: see
    ``generate(rate=)``.

    Args:
        start: a datetime or its ISO 8601 text. If it has a zone, times are in UTC, else they have no zone.
        rate: rows of all splits per unit of event time, such as ``"1000/s"``.
        disorder: the most that a time is moved back.

    Returns: a recipe for timestamps in microseconds.

    Raises: ConfigurationError for arguments of another form.

    >>> times = event_times("2026-01-01", rate="2/s").column(Draws(np.arange(3), 0, "at"))
    >>> [str(t) for t in times.to_pylist()]
    ['2026-01-01 00:00:00', '2026-01-01 00:00:00.500000', '2026-01-01 00:00:01']
    """
    try:
        begin = datetime.fromisoformat(start) if isinstance(start, str) else start
        zoned = begin.tzinfo is not None
        since = (begin if zoned else begin.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"op.event_times: start must be a datetime or text such as '2026-01-01T12:00:00+00:00', got {start!r}"
        ) from error
    length = microseconds(disorder, "op.event_times(disorder=)")
    step = rate_of(rate, "op.event_times(rate=)")
    return _EventTimes(since // timedelta(microseconds=1), step, length, "UTC" if zoned else None)
