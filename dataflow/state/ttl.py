"""How long the value of a key lives."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import ConfigurationError

__all__ = ["Ttl"]


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a value is visible after its key was last written: while the time is below stamp + ``length``.

    The stamp of a value is the greatest of the ``stamps`` that ``KeyedState.insert`` and ``touch`` got for it.

    Args:
        length: microseconds, above zero and below 2**63.
        access: whether reading a value renews its ttl, too. ``KeyedState`` itself does not look at it, and ``find`` and
            ``read`` renew nothing: an operator that is given ``access=True`` calls ``touch`` for the slots that it
            reads. A keyed aggregate reads a value only to write it, so for it both mean the same.

    Raises: ConfigurationError for another length.

    >>> Ttl(3_600_000_000)
    Ttl(length=3600000000, access=False)
    """

    length: int
    access: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.length, int) or isinstance(self.length, bool):
            raise ConfigurationError(f"a ttl is a whole number of microseconds, got {self.length!r}")
        if self.length <= 0:
            raise ConfigurationError(f"a ttl must be above zero, got {self.length} us: leave it out to keep all")
        if self.length >= 2**63:
            raise ConfigurationError(f"a ttl is below 2**63 us, got {self.length} us: leave it out to keep all")
