"""The specs of ``unique`` and ``top``, and the checks of their arguments. ``operators.chosen_rows`` implements them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataflow.clock import Duration, exact_duration_text, microseconds
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import Meaning, Signed, meaning_error
from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError, GraphError
from dataflow.planning.checks import choose_emit
from dataflow.planning.specs import Aggregate, Emit
from dataflow.state.ttl import Ttl

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.graph import Graph

__all__ = ["LastOfKey", "Unique", "choose_row_emit", "time_to_live"]


def time_to_live(ttl: Duration | None, method: str) -> Ttl | None:
    """Return the time to live that was given to ``method``. Raises: ConfigurationError if it is zero or no duration."""
    if ttl is None:
        return None
    length = microseconds(ttl, f"{method}(ttl=)")
    if length == 0:
        raise ConfigurationError(f"{method}(ttl=) must be above zero; leave it out to keep every key")
    return Ttl(length)


def choose_row_emit(
    emit: str | Emit | None, ttl: Duration | None, upstream: Graph, meaning: Meaning | None, method: str
) -> tuple[Emit, str]:
    """Return whether chosen rows come out at the end, or at once as signed changes; and why, if by default.

    Raises: ConfigurationError if ``emit`` is another value; GraphError if a ``ttl`` does not go with it, or with signed
        changes.
    """
    if emit not in (None, Emit.CHANGES, Emit.FINAL, Emit.CHANGES.value, Emit.FINAL.value):
        raise ConfigurationError(f"{method}(emit=) must be 'changes' or 'final', got {emit!r}")
    if ttl is not None and emit in (Emit.FINAL, Emit.FINAL.value):
        raise GraphError(
            f"{method}(ttl=) needs emit='changes', got emit='final': rows of a key that expires are not there at the "
            "end; leave one of them out"
        )
    chosen, because = choose_emit(emit, None, ttl, upstream, meaning, method)
    return (Emit.FINAL if chosen is Emit.FINAL else Emit.CHANGES), because


@dataclass(frozen=True, slots=True)
class Unique(Spec):
    """Emits the first row of each key. A key is forgotten ``ttl`` after its last row, if that is not None.

    It expires by the event time in ``time``, or by the clock if that is None.
    """

    is_users = False
    holds_rows = False

    keys: tuple[str, ...]
    ttl: Ttl | None
    time: EventTime | None

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=" if self.ttl is None else ""

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.ttl is not None

    def detail(self) -> dict[str, Json]:
        return {"keys": list(self.keys), **ttl_detail(self.ttl, self.time)}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*used, *self.keys, *([] if self.time is None else [self.time.column])}

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return inputs[0]

    def origin_of(self, column: str) -> str:
        return column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if meaning is not None:
            how = "taken back" if isinstance(meaning, Signed) else "replaced"
            raise meaning_error(word, meaning, f"a row that is shown, or left out for it, could be {how}")
        return None

    def arguments(self) -> tuple[Any, ...]:
        return (self,)


@dataclass(frozen=True, slots=True)
class LastOfKey(Aggregate):
    """Keeps the last row of each key: an aggregate of all columns that choose the same row."""

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=" if self.ttl is None else ""


def ttl_detail(ttl: Ttl | None, time: EventTime | None) -> dict[str, Json]:
    """Return the settings of expiry for a checkpoint; none if nothing expires."""
    if ttl is None:
        return {}
    return {"ttl": exact_duration_text(ttl.length), "time": None if time is None else time.column}
