"""What is compared: a pipeline found by name, so that a process of its own can find the same one.

compare never writes where the pipeline would: each sink is replaced by Parquet files in a directory of compare's own,
which can be read back.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dataflow.api.pipeline import Pipeline
from dataflow.contracts.sink import Sink
from dataflow.errors import ConfigurationError, SchemaMismatch, did_you_mean
from dataflow.planning.graph import Node
from dataflow.planning.specs import Read, Write
from operators.sinks.parquet import write_parquet

__all__ = ["Subject", "redirected"]


@dataclass(frozen=True, slots=True)
class Subject:
    """``module:pipeline``: a Pipeline, or a callable that gives one; ``arguments`` are what it is called with."""

    target: str
    arguments: tuple[str, ...] = ()

    def pipeline(self) -> Pipeline:
        """The pipeline, imported from the current directory or from wherever modules are found.

        Raises: ConfigurationError that says what was expected and what was found.
        """
        name, _, attribute = self.target.partition(":")
        if not name or not attribute.isidentifier() or name.endswith(".py"):
            raise ConfigurationError(
                f"expected module:pipeline, as in jobs.orders:pipeline, got {self.target!r}"
                + ("; name the module, not its file" if name.endswith(".py") else "")
            )
        module = _imported(name)
        if not hasattr(module, attribute):
            public = [word for word in vars(module) if not word.startswith("_")]
            raise ConfigurationError(f"module {name!r} has no {attribute!r}{did_you_mean(attribute, public)}")
        found = getattr(module, attribute)
        made = found
        if callable(found):
            try:
                made = found(*self.arguments)
            except Exception as error:
                raise ConfigurationError(f"{self.target}() raised {type(error).__name__}: {error}") from error
        if not isinstance(made, Pipeline):
            gave = f"a callable that gave {type(made).__name__}" if made is not found else f"{type(made).__name__}"
            raise ConfigurationError(
                f"{self.target} is expected to be a Pipeline, or a callable without arguments that gives one; "
                f"found {gave}"
            )
        return made


def _imported(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except Exception as error:
        raise ConfigurationError(
            f"module {name!r} cannot be imported from {here}: {type(error).__name__}: {error}"
        ) from error


def redirected(pipeline: Pipeline, folder: Path) -> Pipeline:
    """``pipeline`` with each sink replaced by one that writes Parquet files to ``folder/<name of the sink>``.

    Raises: ConfigurationError for a pipeline that cannot be run to its end, killed, and run again.
    """
    _refuse(pipeline)
    pipeline.graph.validate()
    copy = Pipeline(pipeline.name)
    copy.graph = pipeline.graph.with_sinks(lambda node: _parquet(node, folder))
    return copy


def _refuse(pipeline: Pipeline) -> None:
    nodes = list(pipeline.graph)
    if not any(isinstance(node.spec, Write) for node in nodes):
        raise ConfigurationError(f"pipeline {pipeline.name!r} has no sink, so there is no output to compare")
    for node in nodes:
        if isinstance(node.spec, Read) and not node.spec.source.bounded:
            raise ConfigurationError(
                f"source {node.name!r} never ends; compare runs a pipeline to its end: give it bounded input"
            )
        if isinstance(node.spec, Read) and not node.spec.source.replayable:
            raise ConfigurationError(
                f"source {node.name!r} cannot be read again from an offset, so no restore can be compared with an "
                "undisturbed run: give it input that can be read again"
            )


def _parquet(node: Node, folder: Path) -> Sink:
    sink = write_parquet(folder / node.name)
    try:
        sink.check(node.schema)
    except SchemaMismatch as error:
        raise ConfigurationError(f"compare writes the rows of sink {node.name!r} as Parquet files: {error}") from error
    return sink
