"""A process to be killed: it runs Nexmark queries over files of events, with checkpoints, and writes Parquet files.

    python child.py input/ work/ aligned --parallelism 2 --queries q0 q5

After each source is an operator that needs ``--cost`` microseconds a row, so events wait in the channels to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial

import dataflow as flow
from benchmarks.nexmark.answers import write_queries
from benchmarks.nexmark.events import KINDS, SIDE_INPUT, Sources
from benchmarks.nexmark.queries import QUERIES
from tests.nexmark.duplicates import OPERATORS
from tests.reality.child import Slow, arguments, run

SLOW: Mapping[str, str] = {kind: f"slow {kind}" for kind in KINDS}
"""The operator after the source of each kind of events."""
SHARES: Mapping[str, float] = {"people": 1 / 46, "auctions": 3 / 46, "bids": 1}
"""Events of each kind for one bid."""


class SlowSources(Sources):
    """Streams of events that are spread over slow tasks, ``cost`` microseconds a row.

    Each file of bids has one of ``rates``, rows a second; other kinds come as much slower as they are fewer.
    """

    cost: float = 0
    rates: Sequence[float] = ()

    def stream(self, kind: str) -> flow.Stream:
        name = SLOW[kind]
        if name not in self._streams:
            self._rate = [rate * SHARES[kind] for rate in self.rates]
            slow = partial(Slow, cost=self.cost)
            self._streams[name] = super().stream(kind).rebalance().apply(slow, name=name)
        return self._streams[name]


def pipeline(args: argparse.Namespace) -> flow.Pipeline:
    """Return the queries, in mode ``unaligned`` with so much delay that no row that comes again is late."""
    files = {kind: sorted(args.input.glob(f"{kind}*.parquet")) for kind in (*KINDS, SIDE_INPUT)}
    with flow.Pipeline("nexmark") as p:
        delay = "1min" if args.mode == "unaligned" else "4s"
        sources = SlowSources(p, files, delay=delay, batch_rows=args.batch)
        sources.cost = args.cost * args.parallelism
        sources.rates = [args.rate * share for share in (0.3, 0.2, 0.1, 0.15)]
        write_queries(sources, args.queries, args.work)
    return p


def main() -> None:
    parser = arguments()
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--queries", nargs="+", default=list(QUERIES))
    parser.add_argument("--rate", type=float, default=6_000)
    parser.add_argument("--cost", type=float, default=400)
    parser.add_argument("--batch", type=int, default=25)
    args = parser.parse_args()
    settings = flow.Checkpointing(
        args.work / "ckpt",
        every="100ms",
        min_pause="80ms",  # otherwise slow checkpoints follow each other at once, and each kill finds one in progress
        mode=args.mode,
        alignment_timeout="50ms" if args.mode == "aligned-timeout" else None,
        duplicates="rows",
    )
    run(
        lambda: pipeline(args),
        args.work,
        settings,
        args.parallelism,
        [*SLOW.values(), *(OPERATORS[q] for q in args.queries)],
    )


if __name__ == "__main__":
    main()
