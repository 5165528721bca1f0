"""Users' sources and readers that break their contract are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import END, SourceContext, Split, SplitReader
from dataflow.errors import CleanupFailedWarning, ContractViolation, GraphError, SchemaMismatch
from tests.contracts.user_classes import AWB, ROWS, TWICE, everywhere, failing, said


class Once(SplitReader):
    """Gives one batch and ends."""

    def __init__(self, polled: Any, at: Any = 1, aside: Any = None) -> None:
        self.polled, self.at, self.aside, self.left = polled, at, aside, [polled]

    def poll(self, max_rows: int) -> Any:
        return self.left.pop() if self.left else END

    def rejected(self) -> Any:
        return self.aside

    @property
    def offset(self) -> Any:
        return self.at


class Given(flow.Source):
    """A source with any reader and any splits."""

    schema = AWB
    kernels = ()

    def __init__(self, reader: Any = None, splits: Any = None, selected: Any = None) -> None:
        self.made, self.parts, self.selected = reader, splits or [Split("one")], selected

    def splits(self) -> Any:
        return self.parts

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Any:
        if isinstance(self.made, Once):
            return Once(self.made.polled, self.made.at, self.made.aside)
        return self.made

    def select(self, columns: Any) -> Any:
        return self.selected or self


def read(source: Given, runner: str = "local") -> pa.Table:
    return flow.Pipeline().source(source, name="given").collect(runner=runner)


BATCH = ROWS.to_batches()[0]


@everywhere
def test_columns_that_a_reader_gives_in_another_order_keep_their_names(runner: str) -> None:
    assert read(Given(Once(BATCH)), runner).equals(ROWS.select(AWB.names))


class NeverClosed(Given):
    """Its reader cannot be closed."""

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Any:
        reader = Once(BATCH)
        reader.close = failing  # type: ignore[method-assign]
        return reader


@everywhere
def test_a_reader_that_cannot_be_closed_is_named_in_a_warning_and_its_rows_are_kept(runner: str) -> None:
    with pytest.warns(CleanupFailedWarning, match=r"no.*raised by source 'given' \(NeverClosed\), split 'one'"):
        assert read(NeverClosed(), runner).equals(ROWS.select(AWB.names))


@everywhere
@pytest.mark.parametrize(
    ("reader", "problem"),
    [
        (Once(BATCH.select(["a", "b"])), r"a batch of its reader does not have .*column 'w' \(int64\) is missing"),
        (Once(ROWS), r"split 'one': poll\(\) returns a pa.RecordBatch, None or .*returned a pyarrow.lib.Table"),
        (Once([BATCH]), r"poll\(\) returns .*returned a list"),
        (Once(BATCH, np.int64(4)), r"split 'one': offset is a int64, which is not JSON-serialisable"),
        (Once(BATCH, {"at": {1}}), r"offset\['at'\] is a set"),
        (Once(BATCH, "\udcff"), r"split 'one': offset is '\\udcff', which is not Unicode text"),
        (Once(BATCH, aside=BATCH), r"rejected\(\) returned 4 rows, but the source has no side output 'errors'"),
        (Once(BATCH, aside=[1]), r"rejected\(\) returns a pa.RecordBatch or None, but returned a list"),
        (None, r"split 'one': reader\(\) returns a SplitReader, but returned None"),
        (iter([BATCH]), r"reader\(\) returns a SplitReader, but returned a list_iterator"),
    ],
)
def test_a_reader_that_gives_something_else_is_named(runner: str, reader: Any, problem: str) -> None:
    with pytest.raises(
        (ContractViolation, SchemaMismatch), match=rf"source 'given' \(Given\), .*given\[0\].*{problem}"
    ):
        read(Given(reader), runner)


@pytest.mark.parametrize(
    ("splits", "problem"),
    [
        ([Split("a"), Split("a")], "two splits have the id 'a'"),
        (["a"], "a string and a dict of JSON, but one is a str"),
        ([Split(3)], "but one is a dataflow.contracts.source.Split"),  # type: ignore[arg-type]
        ([Split("a", {"n": np.int64(1)})], r"split 'a': info\['n'\] is a int64"),
        ("ab", r"splits\(\) returns a sequence of Split, but returned a str"),
    ],
)
def test_splits_that_cannot_be_found_again_are_refused(splits: Any, problem: str) -> None:
    with pytest.raises(ContractViolation, match=rf"source 'given' \(Given\): .*{problem}"):
        read(Given(Once(BATCH), splits))


def test_a_source_that_cannot_list_its_splits_is_named() -> None:
    bad = Given(Once(BATCH))
    bad.splits = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no") as caught:
        read(bad)
    assert "raised while source 'given' (Given) listed its splits" in said(caught.value)


def test_a_source_with_two_columns_of_one_name_is_refused() -> None:
    bad = Given(Once(BATCH))
    bad.schema = TWICE
    with pytest.raises(GraphError, match=r"^p.source\(Given\): 'a' is declared more than once"):
        read(bad)


def test_a_source_without_a_schema_or_a_selection_is_named() -> None:
    bad = Given(Once(BATCH))
    bad.schema = {"a": pa.int64()}  # type: ignore[assignment]
    with pytest.raises(GraphError, match=r"p.source\(Given\): its schema must be a pyarrow.Schema"):
        read(bad)
    with pytest.raises(GraphError, match=r"source 'given' .*: select\(.*\) must return a Source, got a int"):
        read(Given(Once(BATCH), selected=3))


def test_a_source_whose_check_raises_on_a_restore_is_named() -> None:
    def run(source: Given) -> None:
        p = flow.Pipeline("p")
        p.source(source, name="given").sink(op.collect(), name="out")
        p.run(checkpoint=flow.Checkpointing(store))

    store, bad = flow.MemoryStore(), Given(Once(BATCH))
    run(Given(Once(BATCH)))
    bad.check = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no") as caught:
        run(bad)
    assert "raised by check() of source 'given' (Given), split 'one'" in said(caught.value)


def test_a_source_whose_kernels_are_no_names_is_named() -> None:
    bad = Given(Once(BATCH))
    bad.kernels = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="not iterable") as caught:
        read(bad)
    assert "raised by Given.kernels" in said(caught.value)
