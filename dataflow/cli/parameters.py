"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

from dataflow.clock import microseconds
from dataflow.errors import ConfigurationError

__all__ = ["alignment_timeout", "checkpoint_or_all", "duration", "html_file", "target"]

target = click.argument("target", metavar="MODULE:PIPELINE")
"""The name of a pipeline; see `dataflow.compare.subject.Subject`."""


def duration(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check the duration of an option, and name the option as it was typed in errors."""
    if value is not None and microseconds(value, option.opts[0]) == 0 and option.name == "every":
        raise ConfigurationError(f"--every must be above zero, such as 100ms, got {value!r}")
    return value


alignment_timeout = click.option(
    "--alignment-timeout",
    metavar="DURATION",
    callback=duration,
    help="Time after which barriers overtake rows in mode aligned-timeout, with a unit: us, ms, s, min or h.  "
    "[default: 100ms]",
)
"""How long after its trigger a checkpoint stays aligned."""


def html_file(_: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    """Check before a long run that a page can be written to the file."""
    if value is not None and value.suffix.lower() != ".html":
        raise ConfigurationError(f"{option.opts[0]} expects a file whose name ends in .html, got {str(value)!r}")
    if value is not None and (value.is_dir() or not value.parent.is_dir()):
        obstacle = "it is a directory" if value.is_dir() else f"there is no directory {value.parent}"
        raise ConfigurationError(f"{option.opts[0]} cannot be written to {value}: {obstacle}")
    return value


def checkpoint_or_all(_: click.Context, option: click.Parameter, value: str | None) -> int | str | None:
    """Return the id of a checkpoint, or "all"; None if the option was not given."""
    if value is None or value == "all":
        return value
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise ConfigurationError(f"{option.opts[0]} expects the id of a checkpoint, such as 7, or all; got {value!r}")
    return int(value)
