"""The settings of an operator, and its properties that the engine must know: the base class of every kind of operator.

The engine asks a spec and never tests which kind it is. ``tests/planning/test_kinds.py`` finds each test of a kind in
the package ``dataflow``, except:

- of sources (``Read``) and sinks (``Write``), because the ends of a pipeline have objects of users with contracts of
  their own;
- in the tables from kinds to their operators (``planning/operator_table.py``) and to operators of Spark
  (``runners/spark/lowering/rules.py``);
- in ``assert``, which decides nothing: a rule of such a table, or a function over folded rows, states what it takes.

So a new kind is a spec, its operator, and one line that joins them::

    @dataclass(frozen=True)
    class Above(flow.Spec):
        column: str
        limit: float
        stateful = False
        row_wise = True

    class AboveOperator(flow.Operator):
        stateless = True

        def __init__(self, context, column, limit): ...

    flow.register(Above, AboveOperator)
    stream.then(Above("price", 9.5))

Specs are pickled for Spark's workers, which import the module that defines the class: call ``register`` there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dataflow.contracts.source import Json
from dataflow.contracts.updates import Meaning, Signed, meaning_error

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChanges
    from dataflow.contracts.execution import RowOrder
    from dataflow.contracts.live_splits import Silence
    from dataflow.contracts.windows import EventTime
    from dataflow.errors import BarrierflowWarning
    from dataflow.expressions import Expr

__all__ = ["Spec", "is_users"]


def is_users(part: object) -> bool:
    """Return whether the class of a source or a sink is a user's, and none of the library.

    >>> import operators as op
    >>> is_users(op.collect())
    False
    """
    return type(part).__module__.partition(".")[0] != "operators"


class Spec:
    """The settings of one kind of operator; a frozen dataclass.

    The defaults are safe for any operator of a user: it keeps state, needs all columns, and takes no updates.
    Attributes may be class attributes or properties, except where their text says otherwise.

    Attributes:
        stateful: whether a checkpoint holds state of the operator, so that its name must not change.
        blocking: whether a call may wait for something outside the engine. Such an operator has its own thread.
        row_wise: whether the output for a row depends on that row alone.
        assigns_time: whether the operator emits watermarks.
        times_by_clock: whether rows get their event time from the clock when they are processed.
        max_drift: microseconds that a task of the source may be ahead of another one before it waits; None: any number.
        split_silence: of a `TimesSplits`, which has a watermark for each split and passes none on: what a split
            without rows does to time; None: it is an operator of another kind.
        holds_by_rows: whether the watermark that the operator holds back depends on its rows, so that its subtasks pass
            on different ones. An operator of a user may always do that.
        times_broadcasts: whether a broadcast input counts for the watermark although others are not broadcast.
        holds_rows: whether the state may hold rows that are emitted later, unchanged. Then, in mode "unaligned", the
            report of a restore says that counts of duplicates downstream may be too low. Must be a class attribute.
        sees_batches: whether its output, or the work of a user's function, depends on how its input is cut into
            batches. Small batches are not joined before such an operator.
        keeps_batches: whether it emits a batch for each batch.
        runs_per_input: whether operators for each of the inputs emit together what one operator for all of them emits,
            so that it may run in the tasks of its inputs.
        expressions: the expressions that alone decide what is emitted for a row: nothing else of the operator raises,
            or has an effect; None: other code decides.
        condition: the expression that must be true for a row to be emitted, one of ``expressions``; None: each row is.
        is_users: whether a user wrote the operator: its batches are compared with the declared schema, and its errors
            over restored state are passed on unchanged.
        calls_users_code: whether a user's code computes its output; by default, if ``is_users``.
        made_by: the class or function with which a user makes the operator; None: what is registered for the spec.
        emits_users_batches: whether it may emit batches that a user's code made; by default, if ``is_users``.
        is_helper: whether the planner added the operator, so that its state and rows are not shown to users.
        bounded_by: the settings that limit the state, for a warning if the input has no end and none of them is given;
            "" if the state is limited.
        emits_at_end: what is emitted only at the end of the input, such as "its results", for a warning or an error if
            the input has no end; "" if rows are emitted before.
        emits_sooner: how to get them before the end, for the same message.
        windowed: whether results are of windows. Then rows may be too late for them.
        row_keys: the columns of which the output has one last row for each combination; None: there are none.
        depends_on_cuts: whether also the last rows depend on how the input is cut into batches, so that the results of
            two runs cannot be compared.
        shown_by_clock: whether the clock decides when results are emitted.
        groups_by: the columns that are only grouped by, which is faster if their text is a dictionary. It needs
            `takes_encoded`, and the output has text.
        folds_rows: whether its batches may have one record for several rows of a key; it keeps none over a barrier.
        folds_alone: whether `folding` pays even if the operator has one subtask, so that no rows move.
        row_order: the order in which the operator takes its rows in a batch; None: that of their arrival.
        numbers_rows: whether it adds the place of a row in its source.
        accepts_reloaded: whether a restore accepts that data of `loaded` has changed.
        late_outputs: the side outputs of rows that leave as they came in, with the number of the input.
        uses_late_rows: whether the late rows still count for what they meet, so that the result lacks only a part.
        kernels: the names of modules with kernels that must be loaded before the operator is built.
        declared_in: the call in which the schemas of its outputs are declared, for messages.
        row_wise_advice: how to declare that the operator is ``row_wise``, for messages.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Above(Spec):
    ...     column: str
    ...     limit: float
    ...     stateful = False
    ...     row_wise = True
    >>> Above("price", 9.5).kind, Above("price", 9.5).arguments(), Above("price", 9.5).reads(0, {"shop"})
    ('above', ('price', 9.5), None)
    """

    stateful: bool = True
    blocking: bool = False
    row_wise: bool = False
    assigns_time: bool = False
    times_by_clock: bool = False
    max_drift: int | None = None
    split_silence: Silence | None = None
    holds_by_rows: bool = False
    times_broadcasts: bool = False
    holds_rows: bool = True
    sees_batches: bool = True
    keeps_batches: bool = True
    runs_per_input: bool = False
    expressions: Sequence[Expr] | None = None
    condition: Expr | None = None
    is_users: bool = True
    made_by: Any = None
    is_helper: bool = False
    bounded_by: str = ""
    emits_at_end: str = ""
    emits_sooner: str = ""
    windowed: bool = False
    depends_on_cuts: bool = False
    shown_by_clock: bool = False
    groups_by: Sequence[str] = ()
    folds_rows: bool = False
    folds_alone: bool = False
    row_order: RowOrder | None = None
    numbers_rows: bool = False
    accepts_reloaded: bool = False
    late_outputs: Mapping[str, int] = MappingProxyType({})
    uses_late_rows: bool = False
    kernels: Sequence[str] = ()
    declared_in: str = "then(...)"
    row_wise_advice: str = "set row_wise = True in its Spec"

    @property
    def row_keys(self) -> tuple[str, ...] | None:
        """The columns of the output that identify a last row."""
        return None

    @property
    def calls_users_code(self) -> bool:
        """Whether a user's code computes the output."""
        return self.is_users

    @property
    def emits_users_batches(self) -> bool:
        """Whether a user's code may own the memory of emitted batches."""
        return self.is_users

    @property
    def kind(self) -> str:
        """The name of the kind in checkpoints: by default, the name of the class in lower case."""
        return type(self).__name__.lower()

    @property
    def kind_words(self) -> str:
        """The kind in words, for pictures: by default, the name of the class.

        >>> import dataflow as flow
        >>> class TopSellers(flow.Spec): ...
        >>> TopSellers().kind_words
        'top sellers'
        """
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(self).__name__).lower()

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the operator's class after the context: by default, the fields of the dataclass.

        >>> from dataclasses import dataclass
        >>> import dataflow as flow
        >>> @dataclass(frozen=True)
        ... class Above(flow.Spec):
        ...     column: str
        ...     limit: float
        >>> Above("price", 9.5).arguments()  # the engine calls AboveOperator(context, "price", 9.5)
        ('price', 9.5)
        """
        assert is_dataclass(self), f"{type(self).__name__} must be a dataclass or define arguments()"
        return tuple(getattr(self, field.name) for field in fields(self))

    def detail(self) -> dict[str, Json]:
        """Return the settings to store in a checkpoint, as JSON, so that a restore can report changes.

        By default, there are none.

        >>> from dataclasses import dataclass
        >>> import dataflow as flow
        >>> @dataclass(frozen=True)
        ... class Above(flow.Spec):
        ...     limit: float
        ...     def detail(self):
        ...         return {"limit": self.limit}
        >>> Above(9.5).detail()
        {'limit': 9.5}
        """
        return {}

    def reads(self, port: int, used: set[str]) -> Iterable[str] | None:
        """Return the columns of an input that are needed to compute some columns of the main output.

        Columns that are not read can be left out only if `origin_of` names the input column of each output column that
        is passed through. Otherwise the declared output keeps its columns, so all of them are in ``used``. An operator
        with side outputs gets all columns of its inputs.

        Args:
            port: the number of the input, from 0.
            used: the columns of the main output that must be emitted: other operators read them, or `narrowed` does not
                leave them out.

        Returns: names of columns; None, as by default: all columns.

        >>> from dataclasses import dataclass
        >>> import dataflow as flow
        >>> @dataclass(frozen=True)
        ... class Above(flow.Spec):
        ...     column: str
        ...     def reads(self, port, used):
        ...         return {self.column, *used}
        >>> sorted(Above("price").reads(0, {"shop"}))
        ['price', 'shop']
        """
        return None

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        """Return the schema of the main output for inputs that lack columns which no operator reads.

        By default, an output column that is an input column (``origin_of``) is left out if the input no longer has it.

        Args:
            inputs: the schema of each input, as it is read, or as it would be read.
            output: the schema of the main output with all columns.

        >>> import pyarrow as pa, dataflow as flow
        >>> class Doubled(flow.Spec):
        ...     def origin_of(self, column):
        ...         return None if column == "double" else column
        >>> output = pa.schema({"x": pa.int64(), "unused": pa.string(), "double": pa.int64()})
        >>> Doubled().narrowed([pa.schema({"x": pa.int64()})], output).names
        ['x', 'double']
        """
        import pyarrow as pa

        if len(inputs) != 1:
            return output
        origins = {field.name: self.origin_of(field.name) for field in output}
        present = frozenset([None, *inputs[0].names])
        if present.issuperset(origins.values()):
            return output
        return pa.schema([field for field in output if origins[field.name] in present])

    def pruned(self, used: set[str]) -> Spec:
        """Return these settings without columns of the main output that no other operator reads.

        By default, the same settings. `narrowed` is then asked of the result. An operator that keeps rows, or adds
        columns, should leave such columns out.

        Args:
            used: the columns of the main output that other operators read.

        >>> import dataflow as flow
        >>> spec = flow.Spec()
        >>> spec.pruned({"x"}) is spec
        True
        """
        return self

    def loaded(self, name: str, notify: Callable[[type[BarrierflowWarning], str], None]) -> Spec:
        """Return these settings with the data that the operator reads once at each start of a job, in each process.

        Called before any row is read and before anything is restored. By default, the same settings.

        Args:
            name: the name of the operator, for messages.
            notify: takes a category and a text to warn of.

        Raises: an error ends the start of the job, which has changed nothing then.

        >>> import dataflow as flow
        >>> spec = flow.Spec()
        >>> spec.loaded("rows", print) is spec
        True
        """
        return self

    def origin_of(self, column: str) -> str | None:
        """Return the input column whose unchanged values ``column`` has.

        Args:
            column: a column of the main output.

        Returns: the name of a column of the input; None, as by default, if there is none.

        >>> import dataflow as flow
        >>> class Doubled(flow.Spec):
        ...     def origin_of(self, column):
        ...         return None if column == "double" else column
        >>> Doubled().origin_of("x"), Doubled().origin_of("double")
        ('x', None)
        """
        return None

    def reloaded(self, stored: Mapping[str, Any]) -> str:
        """Return how the data that `loaded` has read differs from that of a stored run, for messages.

        Args:
            stored: the `detail` of that run.

        Returns: a clause such as ``"the table t.parquet has changed: ..."``; "", as by default, if nothing has.

        >>> import dataflow as flow
        >>> flow.Spec().reloaded({})
        ''
        """
        return ""

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        """Return the names that ``renamed=`` and ``allow_dropped=`` can have after the operator's, as "counts.total".

        By default, there are none.

        Args:
            described: the operator, of a checkpoint or now.

        >>> import dataflow as flow
        >>> from dataflow.contracts.evolution import OperatorDescription
        >>> flow.Spec().pieces(OperatorDescription("x", "spec", [], [], [], {}))
        ()
        """
        return ()

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        """Return what this operator, with the settings it has now, makes of a checkpoint of the operator.

        Called once for each restore, before the checkpoint is compared with the pipeline. By default, nothing changes:
        another setting is refused.

        Args:
            stored: what the checkpoint says of the operator.
            now: the same of the pipeline.
            changes: what the user allows for pieces of the operator: those that exist, each at most once.

        Raises: CheckpointMismatch if a change is not possible, with the reason and what to do.

        >>> import dataflow as flow
        >>> from dataflow.contracts.evolution import OperatorDescription, PieceChanges
        >>> stored = OperatorDescription("x", "spec", [], [("a", "int64")], [], {})
        >>> flow.Spec().evolve(stored, stored, PieceChanges()).stored is stored
        True
        """
        from dataflow.contracts.evolution import Adaptation

        return Adaptation(stored)

    def folding(self) -> Spec | None:
        """Return the settings of an operator that folds rows of a key into one before they are shuffled to this one.

        Returns: None, as by default: there is no such operator, and all rows are shuffled.

        >>> import dataflow as flow
        >>> flow.Spec().folding() is None
        True
        """
        return None

    def without_splits(self) -> Spec:
        """Return the settings with which the operator runs where another engine has read the rows, such as Spark.

        The tasks then have no splits that the engine knows. By default, the same settings. An operator that
        ``assigns_time`` by splits must become a `TimesSplits`: see ``split_silence``.

        >>> import dataflow as flow
        >>> spec = flow.Spec()
        >>> spec.without_splits() is spec
        True
        """
        return self

    def in_batch(self) -> Spec:
        """Return the settings with which the operator computes the same in a batch, where time moves only at the end.

        By default, the same settings. They may emit each row once where these emit changes of rows: then the column
        ``change`` is added after the operator.

        >>> import dataflow as flow
        >>> spec = flow.Spec()
        >>> spec.in_batch() is spec
        True
        """
        return self

    def wants_order(self, time: EventTime | None) -> bool:
        """Return whether, in a batch, the operator must get the rows of a key in order; by default, False.

        The order is that of event time, then that of the source. It is for operators whose output depends on which row
        of a key arrives first.

        Args:
            time: the event time of the rows of input 0; None: they have none.

        >>> import dataflow as flow
        >>> flow.Spec().wants_order(None)
        False
        """
        return False

    def ordered_by(self, order: RowOrder) -> Spec | None:
        """Return settings with which the operator itself goes by ``order`` instead of arrival.

        Args:
            order: the columns that have the order; only asked if `wants_order`.

        Returns: None, as by default: the operator gets all rows sorted, at the end of the input.

        >>> import dataflow as flow
        >>> flow.Spec().ordered_by(None) is None
        True
        """
        return None

    def carrying(self, column: str) -> Spec | None:
        """Return settings with which another column, at the end of each input, passes unchanged to the end of the
        output.

        Args:
            column: the name of the column.

        Returns: None, as by default, if the operator cannot do that.

        >>> import dataflow as flow
        >>> flow.Spec().carrying("x") is None
        True
        """
        return None

    def takes_encoded(self, column: str) -> bool:
        """Return whether the text of an input column may come as a dictionary, without any effect on the output.

        It may if the operator only passes the column on (`origin_of`), or groups by it. Some batches may then have a
        dictionary, and later ones text.

        Args:
            column: a column of text in the input.

        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Cheap(Spec):
        ...     row_wise = True
        ...     def takes_encoded(self, column):
        ...         return column != "price"
        >>> Cheap().takes_encoded("shop"), Cheap().takes_encoded("price")
        (True, False)
        """
        return False

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        """Return what the rows of the main output mean; None: each row counts.

        Args:
            inputs: `Updates` or `Signed` of each input, or None for an input of rows.
            name: the operator's name.
            word: the method of the stream, for messages.

        Raises: GraphError if an input has updates or signed changes and the operator would count them as rows; by
            default, for all of them.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Passed(flow.Spec):
        ...     def changes(self, inputs, *, name, word):
        ...         return inputs[0]
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "b"]})))
        >>> counts = rows.key_by("k").agg(op.count(), emit="updates")
        >>> rows.then(Passed()).changes, counts.then(Passed()).changes
        ('rows', 'updates')
        """
        for meaning in inputs:
            if meaning is not None:
                problem = "are taken back" if isinstance(meaning, Signed) else "a later row replaces"
                raise meaning_error(word, meaning, f"it would count rows that {problem}")
        return None

    def side_advice(self, tag: str) -> str:
        """Return how to declare a side output, for messages.

        Args:
            tag: the side output that a user asked for.

        Returns: text such as ``"declare it: ..."``; "", as by default, if there is no way.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Checked(flow.Spec):
        ...     def side_advice(self, tag):
        ...         return f"declare it: then(..., sides={{{tag!r}: None}})"
        >>> checked = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).then(Checked())
        >>> checked.side("bad")
        Traceback (most recent call last):
        dataflow.errors.GraphError: 'checked' has no side output 'bad'; declare it: then(..., sides={'bad': None})
        """
        return ""
