"""Parameters of tests, and the tier that runs each: default, extended or soak.

The default run has each rule once; ``-m extended`` has products of parameters and more seeds; ``-m soak``, or a
thorough Hypothesis profile, has the rest. Parameters that a run cannot select are not collected either: 40,000
campaigns take ten seconds in each process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

from tests.tiers import DEFAULT, EXTENDED

__all__ = [
    "each_once",
    "each_once_with_seeds",
    "in_extended",
    "in_soak",
    "leave_out_other_tiers",
    "part_of_the_examples",
    "seeds",
    "some_by_default",
]

_selectable: Collection[str] = ("extended", "soak")
"""The markers of the parameters that this run may select, besides those without one."""


def leave_out_other_tiers(config: pytest.Config) -> None:
    """Leave out the parameters of other tiers, if the marker expression of the run is that of one tier.

    Call it before test modules are imported.
    """
    global _selectable
    by_expression = {DEFAULT: (), "quick": (), EXTENDED: ("extended",)}
    _selectable = by_expression.get(config.option.markexpr, ("extended", "soak"))


def seeds(some: int, soak: int, *, extended: int = 0) -> list[Any]:
    """Return the seeds below ``soak``: those below ``some`` for the default run, below ``extended`` for that one.

    >>> seeds(2, 2)
    [0, 1]
    """
    extended = max(some, extended)
    return [
        *range(some),
        *_selected(_parameter([seed], "extended" if seed < extended else "soak") for seed in range(some, soak)),
    ]


def in_extended(*values: Any) -> list[Any]:
    """Return ``values`` as parameters that only ``-m extended`` runs."""
    return [pytest.param(value, marks=pytest.mark.extended) for value in values]


def in_soak(*values: Any) -> list[Any]:
    """Return ``values`` as parameters that only ``-m soak`` runs."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def each_once(*values: Sequence[Any], default: int | None = None) -> list[Any]:
    """Return all combinations of one of each ``values``.

    The default run and the extended one have each value once, ``-m soak`` has the other combinations. If one of
    ``values`` is shorter than another, its values are repeated.

    Args:
        values: the values of each parameter.
        default: how many combinations the default run has, the extended one has the others; None: all of them.

    >>> [parameter.values for parameter in each_once("ab", "xyz") if not parameter.marks]
    [('a', 'x'), ('a', 'z'), ('b', 'y')]
    >>> [parameter.values for parameter in each_once("ab", "xyz", default=1) if not parameter.marks]
    [('a', 'x')]
    """
    diagonal = _diagonal(values)
    every = product(*(range(len(some)) for some in values))
    return _selected(
        _parameter([some[n] for some, n in zip(values, at, strict=True)], _tier(at, diagonal, default)) for at in every
    )


def each_once_with_seeds(soak: int, *values: Sequence[Any], default: int | None = None) -> list[Any]:
    """Return all combinations of a seed below ``soak`` and one of each ``values``.

    The default run and the extended one have each value once, each time with the next seed. ``-m soak`` has the others.

    Args:
        soak: the number of seeds.
        values: the values of each other parameter.
        default: how many combinations the default run has, the extended one has the others; None: all of them.

    >>> [parameter.values for parameter in each_once_with_seeds(4, "ab", "xyz") if not parameter.marks]
    [(0, 'a', 'x'), (1, 'b', 'y'), (2, 'a', 'z')]
    >>> [parameter.values for parameter in each_once_with_seeds(4, "ab", "xyz", default=1) if not parameter.marks]
    [(0, 'a', 'x')]
    """
    diagonal = [(n % soak, *at) for n, at in enumerate(_diagonal(values))]
    every = product(range(soak), *(range(len(some)) for some in values))
    return _selected(
        _parameter([at[0], *(some[n] for some, n in zip(values, at[1:], strict=True))], _tier(at, diagonal, default))
        for at in every
    )


def some_by_default(
    chosen: Collection[tuple[Any, ...]], *values: Sequence[Any], extended: Collection[tuple[Any, ...]] = ()
) -> list[Any]:
    """Return all combinations of one of each ``values``.

    The default run has the ``chosen`` ones, ``-m extended`` those of ``extended``, ``-m soak`` the rest. For a rule
    that does not depend on the values, of which each has tests of its own in the default run.

    >>> [parameter.values for parameter in some_by_default([(1, "b")], range(2), "ab") if not parameter.marks]
    [(1, 'b')]
    """
    every = list(product(*values))
    unknown = [one for one in (*chosen, *extended) if one not in every]
    assert not unknown, f"{unknown} are no combinations of {values}"
    return _selected(
        _parameter(one, None if one in chosen else "extended" if one in extended else "soak") for one in every
    )


def _diagonal(values: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Return positions in ``values`` such that each value is at one of them."""
    return [tuple(n % len(some) for some in values) for n in range(max(map(len, values)))]


def _tier(at: tuple[int, ...], diagonal: Sequence[tuple[int, ...]], default: int | None) -> str | None:
    """Return the tier of the combination at ``at``."""
    if at not in diagonal:
        return "soak"
    return None if default is None or at in diagonal[:default] else "extended"


def _selected(parameters: Iterable[Any]) -> list[Any]:
    """Return the parameters that this run may select."""
    return [one for one in parameters if all(mark.name in _selectable for mark in one.marks)]


def _parameter(values: Sequence[Any], tier: str | None) -> Any:
    named = [value.__name__ if callable(value) else str(value) for value in values]
    return pytest.param(*values, marks=[getattr(pytest.mark, tier)] if tier else [], id="-".join(named))


def part_of_the_examples(divisor: int) -> settings:
    """One in ``divisor`` of the examples of the Hypothesis profile, but three: for a property of which one takes long.

    The first example is the simplest one, which often has no rows.
    """
    return settings(max_examples=max(3, settings.default.max_examples // divisor))
