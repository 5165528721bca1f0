"""Windows without times, as pipelines name them; ``dataflow.contracts.untimed`` says what they are."""

from __future__ import annotations

from dataflow.contracts.untimed import CountWindow, GlobalWindow
from dataflow.errors import ConfigurationError

__all__ = ["count_window", "global_window"]


def global_window() -> GlobalWindow:
    """Return the one window of all rows, which ends with the input; ``early=`` shows results before that.

    On input without an end only ``early=`` shows results; without it, a job warns when it starts (EndlessInputWarning).
    Stopping a job does not end its input. The results have ``window_index``, which is 0, and no event time.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]}), batch_rows=1))
    >>> windows = rows.key_by("k").window(op.global_window(), early=op.after_rows(2), panes="discarding")
    >>> windows.agg(n=op.count()).collect().select(["k", "pane", "n"]).to_pylist()[0]
    {'k': 'a', 'pane': 'early', 'n': 2}
    """
    return GlobalWindow()


def count_window(n: int, *, every: int | None = None) -> CountWindow:
    """Return windows of the last ``n`` rows of a key in the order of arrival, one after every ``every`` rows.

    If ``every`` is below ``n``, windows overlap, and the first ones hold fewer rows. At the end of the input the rows
    after the last window come out as a window that is not complete, with the rows before them that it shares. A row is
    folded into each of its windows, so its cost grows with ``n / every``.

    Args:
        n: the rows of a window, above 0.
        every: the rows from one window to the next, above 0 and at most ``n``. None: ``n``.

    Raises: ConfigurationError for other numbers.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3, 4, 5]})))
    >>> rows.window(op.count_window(2)).agg(sum=flow.col("x").sum()).collect().to_pylist()[1:]
    [{'window_index': 1, 'sum': 7}, {'window_index': 2, 'sum': 5}]
    >>> rows.window(op.count_window(4, every=2)).agg(sum=flow.col("x").sum()).collect()["sum"].to_pylist()
    [3, 10, 12]
    """
    step = n if every is None else every
    for what, number in (("n", n), ("every=", step)):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
            raise ConfigurationError(f"count_window({what}) must be a whole number from 1 to 2**31 - 1, got {number!r}")
    if step > n:
        raise ConfigurationError(
            f"count_window(every=) must be at most n, got n={n} and every={step}; between such windows rows would be "
            "lost"
        )
    return CountWindow(n, step)
