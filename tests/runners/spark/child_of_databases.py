"""Windows over a streaming DataFrame go to a database, to be killed: ``python child_of_databases.py DIRECTORY MASTER``.

The database is Derby, which comes with Spark and runs inside of its JVM. Rows go to a staging table, and then in one
transaction with the app and the number of the micro-batch to the table.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.sink import SparkBatch
from dataflow.runners.spark.session import session_for
from tests.runners.spark.child import clicks

TRIES = 100
FILES = 12


def address(directory: Path) -> str:
    return f"jdbc:derby:{directory / 'database'};create=true"


class Database:
    """The database of a job, in the JVM of a session."""

    def __init__(self, session: Any, directory: Path) -> None:
        self._session = session
        self.address = address(directory)

    def execute(self, *statements: str) -> None:
        """Run statements in one transaction."""
        connection = self._connected()
        try:
            connection.setAutoCommit(False)
            for statement in statements:
                connection.createStatement().executeUpdate(statement)
            connection.commit()
        finally:
            connection.rollback()
            connection.close()

    def _connected(self) -> Any:
        """Connect, as soon as the JVM of an earlier life has ended."""
        for _ in range(TRIES):
            try:
                return self._session._jvm.java.sql.DriverManager.getConnection(self.address)
            except Exception as error:
                if "booted the database" not in str(error):
                    raise
                threading.Event().wait(0.2)
        raise AssertionError("another JVM has the database")

    def create(self) -> None:
        for statement in (
            'create table counts ("user" varchar(20), "window_start" timestamp, "n" bigint, "total" bigint)',
            "create table written (app varchar(100), id bigint, primary key (app, id))",
        ):
            try:
                self.execute(statement)
            except Exception as error:
                if "already exists" not in str(error):
                    raise

    def append(self, frame: Any, batch: SparkBatch) -> None:
        frame.write.jdbc(self.address, "staging", mode="overwrite")
        new = f"not exists (select * from written where app = '{batch.app}' and id = {batch.id})"
        columns = '"user", "window_start", "n", "total"'
        self.execute(
            f"insert into counts ({columns}) select {columns} from staging where {new}",
            f"insert into written select '{batch.app}', {batch.id} from sysibm.sysdummy1 where {new}",
        )


def written(directory: Path) -> Path:
    """The clicks in files below ``directory``; Spark takes them in order of their times. The last row closes all."""
    folder, unfinished = directory / "in", directory / "unfinished"
    if not folder.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        rows = clicks()
        last = pa.table({"user": ["last"], "value": [0], "ts": pa.array([10**10], pa.timestamp("ms"))})
        size = rows.num_rows // FILES
        for number in range(FILES + 1):
            part = rows.slice(number * size, size) if number < FILES else last.cast(rows.schema)
            pq.write_table(part, unfinished / f"{number:02}.parquet")
            os.utime(unfinished / f"{number:02}.parquet", (1_700_000_000 + number,) * 2)
        unfinished.rename(folder)
    return folder


def pipeline(source: flow.Source, sink: flow.Sink) -> flow.Pipeline:
    with flow.Pipeline("clicks") as p:
        timed = p.source(source, name="clicks").with_watermark("ts", delay="3s").key_by("user")
        counts = timed.window(op.tumbling("10s")).agg(
            op.count().alias("n"), col("value").sum().alias("total"), name="counts"
        )
        counts.select("user", "window_start", "n", "total").sink(sink, name="out")
    return p


def main(directory: Path, master: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = ("-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true", "-Dderby.stream.error.file=/dev/null")
    options += ("-Duser.timezone=UTC",)
    conf = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }
    session = session_for(None, conf)
    database = Database(session, directory)
    database.create()
    files = session.readStream.schema("user string, value bigint, ts timestamp_ntz").option("maxFilesPerTrigger", 2)
    runner = flow.SparkRunner(session, sources={"clicks": files.parquet(str(written(directory)))})
    p = pipeline(op.spark_table(clicks().schema), op.foreach_batch(database.append))
    result = p.run(runner, max_key_groups=4, checkpoint=flow.Checkpointing(directory / "job"))
    kept = session.read.jdbc(database.address, "counts").toArrow()
    pq.write_table(kept, directory / "counts.parquet")
    print(f"done after {len(result.checkpoints)} micro-batches", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
