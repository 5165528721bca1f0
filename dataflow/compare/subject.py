"""A pipeline that a command runs or compares, imported by name so that another process can import the same one.

A comparison never writes to the pipeline's own sinks: each is replaced by one that writes Parquet files to the
directory of the comparison, where they can be read back.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dataflow.api.pipeline import Pipeline
from dataflow.contracts.sink import Sink
from dataflow.errors import ConfigurationError, SchemaMismatch, did_you_mean
from dataflow.planning.graph import Node
from dataflow.planning.specs import Read, Write
from operators.sinks.parquet import write_parquet

__all__ = ["Subject", "replace_sinks"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The name of a pipeline.

    Attributes:
        target: "module:name" of a Pipeline, or of a callable that returns one.
        arguments: the arguments of the callable.
    """

    target: str
    arguments: tuple[str, ...] = ()

    def pipeline(self) -> Pipeline:
        """Return the pipeline, imported from the current directory or from Python's search path.

        Raises: ConfigurationError: the target is not a pipeline, or cannot be imported.
        """
        name, _, attribute = self.target.partition(":")
        if not name or not attribute.isidentifier() or name.endswith(".py") or "/" in name:
            raise ConfigurationError(
                f"expected MODULE:PIPELINE, such as jobs.orders:pipeline, got {self.target!r}{_advice(name)}"
            )
        module = _import(name)
        try:
            value = getattr(module, attribute)
        except AttributeError:
            public = [word for word in vars(module) if not word.startswith("_")]
            hint = did_you_mean(attribute, public) or _pipelines_of(module)
            raise ConfigurationError(f"module {name!r} has no {attribute!r}{hint}") from None
        except (Exception, SystemExit) as error:  # a module may have a function __getattr__
            raise ConfigurationError(f"{self.target} raised {type(error).__name__}: {error}") from error
        pipeline = value
        if callable(value):
            try:
                pipeline = value(*self.arguments)
            except (Exception, SystemExit) as error:  # a script may exit when it is called
                raise ConfigurationError(f"{self.target}() raised {type(error).__name__}: {error}") from error
        if not isinstance(pipeline, Pipeline):
            kind = type(pipeline).__name__
            raise ConfigurationError(
                f"expected {self.target} to be a Pipeline, or a callable without arguments that returns one; "
                f"found {f'a callable that returned {kind}' if pipeline is not value else kind}{_pipelines_of(module)}"
            )
        return pipeline


def _advice(name: str) -> str:
    """Return what to write instead of ``name``, as the end of an error: the module of a file, or a name after it."""
    if name.endswith(".py") or "/" in name:
        module = ".".join(Path(name).with_suffix("").parts) if not name.startswith(("/", ".")) else ""
        return "; name the module, not its file" + (f": {module}:PIPELINE" if module else "")
    return f"; give the name of the pipeline in the module: {name}:PIPELINE" if name else ""


def _pipelines_of(module: ModuleType) -> str:
    """Return the names of the pipelines in ``module``, as the end of an error; "" if there are none."""
    names = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
    return f"; pipelines of the module: {', '.join(names)}" if names else ""


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # a script may exit when it is imported
        raise ConfigurationError(
            f"module {name!r} cannot be imported from {here}: {type(error).__name__}: {error}; run the command in "
            "the directory that has the module, or set PYTHONPATH"
        ) from error


def replace_sinks(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Return a copy of ``pipeline`` whose sinks write Parquet files to ``folder/<name of the sink>``.

    Raises: ConfigurationError: the pipeline has no sink, does not end, or cannot be read again.
    """
    _refuse(pipeline)
    pipeline.graph.validate()
    copy = Pipeline(pipeline.name)
    copy.graph = pipeline.graph.with_sinks(lambda node: _parquet(node, folder))
    return copy


def _refuse(pipeline: Pipeline) -> None:
    nodes = list(pipeline.graph)
    if not any(isinstance(node.spec, Write) for node in nodes):
        raise ConfigurationError(
            f"pipeline {pipeline.name!r} has no sink, so there is no output to compare; add a sink"
        )
    for node in nodes:
        if isinstance(node.spec, Read) and not node.spec.source.bounded:
            raise ConfigurationError(
                f"source {node.name!r} never ends, but compare runs a pipeline to its end; give it bounded input"
            )
        if isinstance(node.spec, Read) and not node.spec.source.replayable:
            raise ConfigurationError(
                f"source {node.name!r} cannot be read again from an offset, so no restored run can be "
                "compared with a run without a kill; give it input that can be read again"
            )


def _parquet(node: Node, folder: Path) -> Sink:
    sink = write_parquet(folder / node.name)
    try:
        sink.check(node.schema)
    except SchemaMismatch as error:
        raise ConfigurationError(f"compare writes the rows of sink {node.name!r} as Parquet files: {error}") from error
    return sink
