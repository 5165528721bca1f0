"""Validation of checkpoints and commit lists, which are untrusted: other users may have written them.

The checksums of a checkpoint detect failing disks. They do not prevent forgery, because a forger can recompute them.
So every name, path, number and table is validated here before it is used. See ``docs/security.md``.

Invariant: a name that ``plain_name`` accepts, joined to a directory, is an entry of that directory.

>>> plain_name("part-00000007-00000-0000.parquet", "the file of a transaction")
'part-00000007-00000-0000.parquet'
>>> plain_name("../.profile", "the file of a transaction")
Traceback (most recent call last):
dataflow.errors.CheckpointDamaged: the file of a transaction: expected the plain name of a file, found '../.profile'
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec

from dataflow.errors import CheckpointDamaged, DataflowError

__all__ = [
    "MAX_DEPTH",
    "Count",
    "Time",
    "check_depth",
    "damaged_by",
    "excerpt",
    "is_plain_name",
    "parsed",
    "plain_name",
]

MAX_DEPTH: Final = 100
"""The maximum nesting of values of a checkpoint: consumers recurse, and the C stack is finite."""

_MAX_NAME: Final = 255
"""Bytes of a file name: the limit of the usual file systems."""
_SHOWN: Final = 300
"""The maximum number of characters of a value in a message: enough for the path of a file."""
_FORBIDDEN: Final = frozenset("/\\\0")

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
"""A number of rows or bytes, or a position."""

Time = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A time in microseconds, as a 64-bit integer."""


def is_plain_name(name: object) -> bool:
    """Return whether ``name`` is the name of an entry of a directory, and not a path that leads elsewhere.

    Args:
        name: the document's value for a name, of any type.

    >>> [is_plain_name(name) for name in ("a.csv", "..", "/etc/passwd", "a/b", "a\\0b", "", 7)]
    [True, False, False, False, False, False, False]
    """
    if not isinstance(name, str) or name in ("", ".", "..") or not _FORBIDDEN.isdisjoint(name):
        return False
    return len(name.encode("utf-8", "surrogatepass")) <= _MAX_NAME


def plain_name(name: object, what: str) -> str:
    """Return ``name`` if it is the name of an entry of a directory.

    Args:
        name: the document's value for a name.
        what: the purpose of the name, for the message.

    Raises:
        CheckpointDamaged: ``name`` is empty, too long, or a path.
    """
    if not is_plain_name(name):
        raise CheckpointDamaged(f"{what}: expected the plain name of a file, found {excerpt(name)}")
    assert isinstance(name, str), "checked above"
    return name


def parsed(type_: Any, value: object, what: str) -> Any:
    """Return ``value``, which was read from JSON, as ``type_``: a ``msgspec.Struct``, or any type that msgspec knows.

    Args:
        type_: the type, with its limits (``msgspec.Meta``).
        value: the document's value.
        what: the meaning of the value, for the message.

    Raises:
        CheckpointDamaged: a field is missing, or a value has another type or is beyond its limits.

    >>> parsed(int, "7", "the offset of split 'a'")
    Traceback (most recent call last):
    dataflow.errors.CheckpointDamaged: the offset of split 'a': Expected `int`, got `str`
    """
    try:
        return msgspec.convert(value, type_)
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        raise CheckpointDamaged(f"{what}: {error}") from error


def check_depth(value: object, what: str) -> None:
    """Check that lists and mappings in ``value`` are nested at most ``MAX_DEPTH`` levels deep.

    Args:
        value: the document's value.
        what: the meaning of the value, for the message.

    Raises:
        CheckpointDamaged: they are nested deeper.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH + 1:
            raise CheckpointDamaged(f"{what}: values are nested deeper than {MAX_DEPTH} levels")
        inner: list[object] = []
        for outer in level:
            values: Any = (
                outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list | tuple) else ()
            )
            inner += [item for item in values if isinstance(item, dict | list | tuple)]
        level = inner


@contextmanager
def damaged_by(what: str) -> Iterator[None]:
    """Turn exceptions of the library's own code about unexpected values into ``CheckpointDamaged``.

    Use it only around code of this library that reads restored state. A ``DataflowError``, which the code raises on
    purpose, passes unchanged, except that the message of a ``CheckpointDamaged`` is prefixed by ``what``.

    Args:
        what: the owner of the state that is read, for the message.

    >>> with damaged_by("operator 'counts'"):
    ...     {}["watermark"]
    Traceback (most recent call last):
    dataflow.errors.CheckpointDamaged: operator 'counts': its state is not as it was written (KeyError: 'watermark')
    """
    try:
        yield
    except CheckpointDamaged as error:
        raise CheckpointDamaged(f"{what}: {error}") from error
    except DataflowError:
        raise
    except Exception as error:
        shown = str(error)[:500]
        raise CheckpointDamaged(
            f"{what}: its state is not as it was written ({type(error).__name__}: {shown})"
        ) from error


def excerpt(value: object) -> str:
    """Return ``value`` as text for a message, shortened, because values of a document may have any size.

    >>> excerpt("x" * 1000)[-6:], len(excerpt("x" * 1000))
    ("xx'...", 305)
    """
    shown = repr(value if not isinstance(value, str) else value[:_SHOWN])
    cut = len(shown) > _SHOWN + 2 or (isinstance(value, str) and len(value) > _SHOWN)
    return f"{shown[: _SHOWN + 2]}..." if cut else shown
