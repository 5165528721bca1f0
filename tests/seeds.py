"""How much of a campaign the default run does; ``-m soak`` or a thorough Hypothesis profile does the rest.

A run that cannot select campaigns does not collect their cases either: 40,000 of them take ten seconds in each process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

__all__ = [
    "each_once",
    "each_once_with_seeds",
    "in_soak",
    "leave_out_campaigns",
    "part_of_the_examples",
    "seeds",
    "some_by_default",
]

_campaigns = True


def leave_out_campaigns(config: pytest.Config) -> None:
    """Leave out what only ``-m soak`` runs, if the run has the marker expression of the configuration file, or quick.

    Call it before test modules are imported.
    """
    global _campaigns
    _campaigns = config.option.markexpr not in (*config.getini("addopts"), "quick")


def seeds(some: int, soak: int) -> list[Any]:
    """Return the seeds below ``some``, and those from there to ``soak``, which only ``-m soak`` runs."""
    return [*range(some), *(in_soak(*range(some, soak)) if _campaigns else [])]


def in_soak(*values: Any) -> list[Any]:
    """Return ``values`` as parameters that only ``-m soak`` runs."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def each_once(*values: Sequence[Any]) -> list[Any]:
    """Return all combinations of one of each ``values``. The default run has each value once, ``-m soak`` the others.

    If one of ``values`` is shorter than another, its values are repeated.

    >>> [parameter.values for parameter in each_once("ab", "xyz") if not parameter.marks]
    [('a', 'x'), ('a', 'z'), ('b', 'y')]
    """
    chosen = _diagonal(values)
    every = product(*(range(len(some)) for some in values))
    return _selectable(
        _parameter([some[n] for some, n in zip(values, at, strict=True)], soak=at not in chosen) for at in every
    )


def each_once_with_seeds(soak: int, *values: Sequence[Any]) -> list[Any]:
    """Return all combinations of a seed below ``soak`` and one of each ``values``.

    The default run has each value once, each time with the next seed. ``-m soak`` has the others.

    >>> [parameter.values for parameter in each_once_with_seeds(4, "ab", "xyz") if not parameter.marks]
    [(0, 'a', 'x'), (1, 'b', 'y'), (2, 'a', 'z')]
    """
    chosen = {(n % soak, *at) for n, at in enumerate(_diagonal(values))}
    every = product(range(soak), *(range(len(some)) for some in values))
    return _selectable(
        _parameter([seed, *(some[n] for some, n in zip(values, at, strict=True))], soak=(seed, *at) not in chosen)
        for seed, *at in map(tuple, every)
    )


def some_by_default(chosen: Collection[tuple[Any, ...]], *values: Sequence[Any]) -> list[Any]:
    """Return all combinations of one of each ``values``. The default run has the ``chosen`` ones, ``-m soak`` the rest.

    For a rule that does not depend on the values, of which each has tests of its own in the default run.

    >>> [parameter.values for parameter in some_by_default([(1, "b")], range(2), "ab") if not parameter.marks]
    [(1, 'b')]
    """
    every = list(product(*values))
    unknown = [one for one in chosen if one not in every]
    assert not unknown, f"{unknown} are no combinations of {values}"
    return _selectable(_parameter(one, soak=one not in chosen) for one in every)


def _diagonal(values: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Return positions in ``values`` such that each value is at one of them."""
    return [tuple(n % len(some) for some in values) for n in range(max(map(len, values)))]


def _selectable(parameters: Iterable[Any]) -> list[Any]:
    """Return the parameters that this run may select."""
    return [one for one in parameters if _campaigns or not one.marks]


def _parameter(values: Sequence[Any], *, soak: bool) -> Any:
    named = [value.__name__ if callable(value) else str(value) for value in values]
    return pytest.param(*values, marks=[pytest.mark.soak] if soak else [], id="-".join(named))


def part_of_the_examples(divisor: int) -> settings:
    """One in ``divisor`` of the examples of the Hypothesis profile, but three: for a property of which one takes long.

    The first example is the simplest one, which often has no rows.
    """
    return settings(max_examples=max(3, settings.default.max_examples // divisor))
