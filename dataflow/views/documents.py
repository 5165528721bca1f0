"""Pictures as documents: a page of HTML that requests nothing, and files that are written whole.

>>> page = html_page("two & three", "<p>5</p>")
>>> "<title>two &amp; three</title>" in page, "default-src 'none'" in page
(True, True)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from html import escape
from os import PathLike
from pathlib import Path
from typing import Final

from dataflow.drawing import printable, printable_lines
from dataflow.errors import ConfigurationError
from dataflow.events.record import is_path
from dataflow.store.files import DISK, storing

__all__ = ["html_page", "notebook_html", "save"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Lets a page have a style sheet of its own, and nothing else: no script, no image, no request."""

_STYLE: Final = """\
:root{color-scheme:light dark}
body{margin:1.5rem;font:15px/1.5 "DejaVu Sans",ui-sans-serif,system-ui,sans-serif;background:#fff;color:#1b222c}
h1{font-size:1.25rem;overflow-wrap:anywhere}
figure{margin:0 0 1rem;overflow-x:auto}
figure svg{display:block}
summary{cursor:pointer}
pre{overflow-x:auto;line-height:1.3}
@media (prefers-color-scheme:dark){body{background:#15191f;color:#e6e9ee}}
"""


def html_page(title: str, body: str, *, style: str = "") -> str:
    """Return an HTML document that is one file and requests nothing.

    Args:
        title: any text; the title of the page.
        body: HTML, in which the caller has escaped every text.
        style: further rules of the style sheet.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(printable(title))}</title>\n<style>\n{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def notebook_html(picture: str, columns: str = "") -> str:
    """Return what a notebook shows: a picture, which scrolls if it is wide, and below it a folded text of some lines.

    Args:
        picture: an ``svg`` element, or HTML with some. It is part of the page, so parts of it have titles that are
            shown under the pointer.
        columns: the text; none if it is empty.
    """
    lines = escape(printable_lines(columns))
    details = f"<details><summary>columns</summary><pre>{lines}</pre></details>\n" if lines else ""
    return f'<div style="overflow-x:auto">\n{picture}</div>\n{details}'


def save(path: str | PathLike[str], forms: Mapping[str, Callable[[], str]]) -> None:
    """Write a picture to a file, in the form that the suffix of its name says. Replaces an existing file atomically.

    Args:
        path: the file, in a directory that exists.
        forms: for each suffix, such as ".svg", what returns the content.

    Raises:
        ConfigurationError: ``path`` is no path, or its suffix is none of ``forms``.
        StoreError: the file cannot be written. An existing one is unchanged.

    >>> save("picture.png", {".svg": str, ".html": str})
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: 'picture.png' is no picture: its name must end in .svg or .html
    """
    *others, last = forms
    names = f"{', '.join(others)} or {last}" if others else last
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str):
        raise ConfigurationError(f"save() expects the path of a file whose name ends in {names}, got {name!r}")
    file = Path(name)
    form = forms.get(file.suffix.lower())
    if form is None or "\0" in name:
        raise ConfigurationError(f"{name!r} is no picture: its name must end in {names}")
    if not is_path(name):
        raise ConfigurationError(f"{name!r} is no path: it has half of a character; give the file another name")
    content = form().encode()
    with storing("write the picture", file):
        DISK.write_new(file, [content])
