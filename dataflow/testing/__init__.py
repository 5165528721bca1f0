"""Public tools for tests of barriers, sinks and restores.

- ``replay``, ``Replay``, in ``barrier_replay``: run a script of rows and barriers through the real gate and handlers
- ``ScriptedSource``, ``Pause``, in ``scripted_source``: a source that emits given batches and pauses
- ``ledger_sink``, ``Ledger``, ``ContractBroken``, in ``ledger``: a two-phase sink that checks its contract
- ``lineage``, ``delivered_again``, in ``lineage``: the restores and the duplicates that led to a final result

``replay_script`` defines the notation of scripts for ``replay``.

>>> from dataflow.testing import replay
>>> replay("aligned", channels="ab", script="a:1 a|1 a:2 b:3 b|1 b:4").log
['1', '3', 'S(1)', '2', '4']
"""

from __future__ import annotations

from dataflow.testing.barrier_replay import Replay, replay
from dataflow.testing.ledger import ContractBroken, Ledger, LedgerSink, ledger_sink
from dataflow.testing.lineage import delivered_again, lineage
from dataflow.testing.scripted_source import Pause, ScriptedSource

__all__ = [
    "Replay",
    "replay",
    "ContractBroken",
    "Ledger",
    "LedgerSink",
    "ledger_sink",
    "Pause",
    "ScriptedSource",
    "delivered_again",
    "lineage",
]
