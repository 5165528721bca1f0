"""Tools for tests, public: replay a script of barriers through the real gate and handlers.

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
