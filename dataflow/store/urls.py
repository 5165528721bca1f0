"""URLs in place of paths: recognise them, and get the local path of a ``file:`` URL."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

__all__ = ["is_url", "local_path"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # pathlib collapses two slashes into one


def is_url(path: str) -> bool:
    """Return whether ``path`` begins like a URL, and so is no local path.

    >>> is_url("s3://bucket/key"), is_url("data/2024")
    (True, False)
    """
    return _SCHEME.match(path) is not None


def local_path(path: str) -> str | None:
    """Return the local path of ``path``, which is a path or a ``file:`` URL; None for other URLs and machines.

    >>> local_path("file:///data/my%20job"), local_path("data"), local_path("s3://bucket/job")
    ('/data/my job', 'data', None)
    >>> local_path("file://localhost/data"), local_path("file://elsewhere/data")  # the last one names another machine
    ('/data', None)
    """
    if path.startswith("file:/"):
        rest = path.removeprefix("file:")
        if rest.startswith("//") and not rest.startswith("///"):
            host, _, rest = rest.removeprefix("//").partition("/")
            if host != "localhost":
                return None
        return "/" + unquote(rest).lstrip("/")
    return None if is_url(path) else path
