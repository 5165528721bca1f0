"""A process to be killed: it runs Nexmark queries over files of bids, with checkpoints, and writes Parquet files.

    python child.py input/ work/ aligned --parallelism 2 --queries q0 q5

Behind the source is an operator that needs ``--cost`` microseconds a row, so bids wait in the channels to it.
"""

from __future__ import annotations

import argparse
from functools import partial

import dataflow as flow
from benchmarks.nexmark.answers import write_queries
from benchmarks.nexmark.events import Sources
from benchmarks.nexmark.queries import QUERIES
from tests.nexmark.duplicates import OPERATORS
from tests.reality.child import Slow, arguments, run

SLOW = "slow bids"
"""The operator behind the source."""


class SlowSources(Sources):
    """Streams of events that are spread over slow tasks, ``cost`` microseconds a row."""

    cost: float = 0

    def stream(self, kind: str) -> flow.Stream:
        if SLOW not in self._streams:
            slow = partial(Slow, cost=self.cost)
            self._streams[SLOW] = super().stream(kind).rebalance().apply(slow, name=SLOW)
        return self._streams[SLOW]


def pipeline(args: argparse.Namespace) -> flow.Pipeline:
    """Return the queries, in mode ``unaligned`` with so much delay that no row that comes again is late."""
    files = {"bids": sorted(args.input.glob("bids-*.parquet"))}
    rates = [args.rate * share for share in (0.3, 0.2, 0.1, 0.15)]  # each file has its own
    with flow.Pipeline("nexmark") as p:
        delay = "1min" if args.mode == "unaligned" else "4s"
        sources = SlowSources(p, files, delay=delay, batch_rows=args.batch, rate=rates)
        sources.cost = args.cost * args.parallelism
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
    run(lambda: pipeline(args), args.work, settings, args.parallelism, [SLOW, *(OPERATORS[q] for q in args.queries)])


if __name__ == "__main__":
    main()
