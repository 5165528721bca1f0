"""A bank with two branches: transfers leave accounts in the north, travel along channels, and come in in the south."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import CheckpointState, col
from dataflow.state.codec import decode, encode
from dataflow.store.files import Content, pieces_of
from dataflow.store.manifest import STATE, PartHandle

__all__ = ["OPENING", "Branch", "ForgetsChannels", "bank", "conserved", "held", "money", "transfers"]

OPENING = 500
"""What every account in the north has at first."""
ACCOUNTS = 4


class Branch(flow.Operator):
    """Accounts that pay each transfer for which there is enough, and send it on its way."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.schema = context.output_schema
        table = context.restored.tables["accounts"] if context.restored else pa.table({"id": [], "balance": []})
        self.balances = dict(zip(table["id"].to_pylist(), table["balance"].to_pylist(), strict=True))

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        paid = []
        for row in batch.to_pylist():
            balance = self.balances.setdefault(row["payer"], OPENING)
            if balance >= row["amount"]:
                self.balances[row["payer"]] = balance - row["amount"]
                paid.append({"payee": row["payee"], "amount": row["amount"]})
        out.emit(pa.RecordBatch.from_pylist(paid, self.schema))

    def snapshot(self) -> flow.Snapshot:
        ids, balances = list(self.balances), list(self.balances.values())
        return flow.Snapshot(tables={"accounts": pa.table({"id": ids, "balance": balances})})


def transfers(rows: int = 200, batch_rows: int = 4) -> flow.Source:
    """More than the accounts can pay."""
    numbers = range(rows)
    payers, payees = [n % ACCOUNTS for n in numbers], [n * n % 7 for n in numbers]
    amounts = [1 + n % 23 for n in numbers]
    return op.from_arrow(
        pa.table({"payer": payers, "payee": payees, "amount": amounts}), batch_rows=batch_rows, splits=2
    )


def bank(source: flow.Source | None = None) -> flow.Pipeline:
    travelling = pa.schema([("payee", pa.int64()), ("amount", pa.int64())])
    with flow.Pipeline("bank") as p:
        orders = p.source(source or transfers(), name="orders").key_by("payer")
        paid = orders.apply(Branch, schema=travelling, name="north")
        south = paid.key_by("payee").agg(col("amount").sum().alias("amount"), emit="updates", name="south")
        south.sink(op.collect(), name="statements")
    return p


def total(column: pa.ChunkedArray) -> int:
    return sum(column.to_pylist())


def held(state: CheckpointState) -> int:
    """What the accounts of both branches have, those that nobody has asked yet included."""
    accounts = state.table("north", "accounts")
    unopened = OPENING * (ACCOUNTS - accounts.num_rows)
    return unopened + total(accounts["balance"]) + total(state.table("south")["amount"])


def money(state: CheckpointState) -> int:
    """All the money there is: in accounts, and on its way."""
    return held(state) + total(state.rows_to("south")["amount"])


def conserved(state: CheckpointState) -> bool:
    return money(state) == ACCOUNTS * OPENING


class ForgetsChannels(flow.MemoryStore):
    """A protocol that is broken: the rows in flight to the tasks in ``forgets`` are not part of the checkpoint."""

    def __init__(self, forgets: Sequence[str]) -> None:
        super().__init__()
        self._forgets = forgets

    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        if task in self._forgets and part == STATE:
            values, tables = decode(b"".join(pieces_of(data)))
            data = encode({**values, "in_flight": []}, tables)  # type: ignore[assignment]
        return super().write(checkpoint, task, data, part)
