"""The numbers under which Spark keeps the state of keyed tasks, chosen so that its partitions get equal shares of them.

Spark distributes a number to the partition ``hash(number) % partitions``, by Murmur3. The numbers 0, 1, 2, ... spread
badly: of 64 partitions for 128 of them 13 are empty, and one has 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["closing_numbers", "even_slots", "partition_of"]

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF


def partition_of(number: int, partitions: int) -> int:
    """Return the partition of Spark's to which rows with the int32 key ``number`` come.

    >>> [partition_of(number, 5) for number in range(6)]
    [1, 3, 4, 1, 2, 1]
    """
    mixed = _rotated(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    found = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    found ^= found >> 16
    return (found - (1 << 32) if found >> 31 else found) % partitions


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


def even_slots(tasks: int, partitions: int) -> Sequence[int]:
    """Return a number for each of ``tasks`` keyed tasks: task i gets one of partition ``i % partitions``.

    >>> [partition_of(slot, 3) for slot in even_slots(7, 3)]
    [0, 1, 2, 0, 1, 2, 0]
    """
    found: list[list[int]] = [[] for _ in range(partitions)]
    wanted = [len(range(partition, tasks, partitions)) for partition in range(partitions)]
    number, missing = 0, tasks
    while missing:
        partition = partition_of(number, partitions)
        if len(found[partition]) < wanted[partition]:
            found[partition].append(number)
            missing -= 1
        number += 1
    return [found[task % partitions][task // partitions] for task in range(tasks)]


def closing_numbers(after: int, partitions: int) -> Sequence[int]:
    """Return a number for each partition, above ``after``: Spark processes it last, because it sorts by number.

    >>> [partition_of(number, 3) for number in closing_numbers(7, 3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    while len(found) < partitions:
        after += 1
        found.setdefault(partition_of(after, partitions), after)
    return [found[partition] for partition in range(partitions)]
