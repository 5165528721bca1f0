"""How long the value of a key lives."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import ConfigurationError

__all__ = ["Ttl"]


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a value is visible after its key was last written: while the time is below stamp + ``length``.

    Args:
        length: microseconds, above zero.
        access: whether reading a value counts as well as writing it: the operator then calls ``KeyedState.touch`` for
            the slots that it reads.

    Raises: ConfigurationError for a length of zero or less.

    >>> Ttl(3_600_000_000)
    Ttl(length=3600000000, access=False)
    """

    length: int
    access: bool = False

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise ConfigurationError(f"a ttl must be above zero, got {self.length} us: leave it out to keep all")
