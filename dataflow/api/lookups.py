"""The method of streams that looks rows up in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from dataflow.api.stream_base import StreamBase
from dataflow.contracts.source import Source
from dataflow.contracts.updates import CHANGE
from dataflow.errors import ConfigurationError, GraphError
from dataflow.planning.checks import check_options
from dataflow.planning.join_columns import join_columns, join_keys
from dataflow.planning.lookup_specs import Lookup, LookupHow, OnChange
from dataflow.planning.lookup_tables import LookupTable
from dataflow.registry import resolve

if TYPE_CHECKING:
    from dataflow.api.streams import Stream

__all__ = ["LookupMethods"]

Keys = str | Sequence[str]


class LookupMethods(StreamBase):
    """The method of `Stream` that looks rows up in a table."""

    def lookup(
        self,
        table: Any,
        *,
        on: Keys | None = None,
        left_on: Keys | None = None,
        right_on: Keys | None = None,
        how: LookupHow = "inner",
        suffix: str = "_right",
        on_change: OnChange = "refuse",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return each row with the columns of the rows of ``table`` that have its key.

        The table is read at each start of the job, once in each process, before the first row; only the columns that
        the pipeline uses are read, and kept in memory. Rows keep their order; several rows of the table with one key
        give several rows, in the order of the table. Null equals nothing; NaN equals NaN, and -0.0 equals 0.0.

        A checkpoint has a hash of each column that was read. A restore compares the columns that both runs use; the
        order of the table's rows counts, too.

        Args:
            table: a bounded source such as ``op.read_parquet("planes/")``, or Arrow data such as a ``pyarrow.Table``.
            on: the column, or columns, that must be equal and that both sides have.
            left_on: with ``right_on``, in the place of ``on``: the columns of this stream.
            right_on: the columns of ``table``, in the same order and of the same types.
            how: ``"inner"``: rows without a counterpart are dropped; ``"left"``: they come out with nulls.
            suffix: is put after the name of a column of ``table`` if the result already has a column of that name.
            on_change: if the table has changed since the restored checkpoint was taken: ``"refuse"`` the restore, or
                ``"reload"``, so that further rows are joined with the new table, with a warning.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream of the keys, with their names in this stream; its other columns; the other columns of
            ``table``. It keeps its event time. Signed changes stay signed.

        Raises:
            GraphError: no keys are given, the table is a stream, unbounded, or cannot be read twice; two columns of one
                name; the rows are updates (see `changes`).
            SchemaMismatch: keys of different types, or of types that cannot be keys.
            UnknownColumn: a side has no such column.
            ConfigurationError: ``how`` or ``on_change`` is wrong.
            SourceError: when the job starts, the table cannot be read.
            CheckpointMismatch: when the job starts from a checkpoint, the table has changed.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> flights = flow.Pipeline().source(op.from_arrow(pa.table({"plane": ["N1", "N7", "N2"], "miles": [9, 5, 7]})))
        >>> planes = pa.table({"plane": ["N1", "N2"], "seats": [100, 200]})
        >>> flights.lookup(planes, on="plane").collect()["seats"].to_pylist()
        [100, 200]
        >>> flights.lookup(planes, on="plane", how="left").select("miles", "seats").collect().to_pylist()[1]
        {'miles': 5, 'seats': None}
        """
        import pyarrow as pa

        check_options("lookup", self.schema, name=name, parallelism=parallelism)
        for word, value, values in (("how", how, get_args(LookupHow)), ("on_change", on_change, get_args(OnChange))):
            if value not in values:
                raise ConfigurationError(f"lookup({word}=) must be {values[0]!r} or {values[1]!r}, got {value!r}")
        source = _source(table)
        right = LookupTable.whole(source, table)
        keys = join_keys(self._columns, right.schema, "lookup", on, left_on, right_on)
        columns, schema = join_columns(
            self._columns, right.schema, keys, "lookup", suffix=suffix, optional=(False, how == "left")
        )
        if self._is_signed:
            schema = schema.append(pa.field(CHANGE, pa.int8()))
        spec = Lookup(columns, how, right, on_change)
        return self._then(spec, schema, "lookup", name, parallelism, time=self._time_in(schema))


def _source(table: Any) -> Source:
    """Return the table as a source that can be read at each start. Raises: GraphError."""
    if isinstance(table, StreamBase):
        raise GraphError(
            f"lookup: its table is a source or Arrow data, got the stream {table.name!r}; give the source itself, as "
            "in lookup(op.read_parquet(...)), or use join(), which takes a stream"
        )
    if isinstance(table, Source):
        source = table
    else:
        try:
            source = resolve("source", "from_arrow")(table)
        except TypeError as error:
            raise GraphError(
                "lookup: its table is a bounded source such as op.read_parquet(...), or Arrow data such as a pa.Table, "
                f"got {table!r} ({type(table).__name__})"
            ) from error
    kind = type(source).__name__
    if not source.bounded:
        raise GraphError(
            f"lookup reads its table whole before the first row, but {kind} is unbounded; read the files that exist, "
            "as with op.read_parquet(...), or use join() or join_asof() with a stream of it"
        )
    if not source.replayable:
        raise GraphError(
            f"lookup reads its table at each start of the job, but {kind} can be read only once; give a pa.Table, or "
            "op.from_arrow(..., replayable=True)"
        )
    if source.sides:
        raise GraphError(
            f"lookup: rejected rows of its table would be lost, but {kind} sets rows aside; leave out on_error=, so "
            "that such a row is an error"
        )
    return source
