"""A standalone cluster of Spark's on this machine: a master and two workers, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.runners.spark.test_kills import command_of

WORKERS = 2
_PATIENCE = 60
"""Seconds until a server must have started."""


class Cluster:
    """A cluster whose master is at ``master``; its processes are ``servers``, and what they start."""

    def __init__(self, folder: Path) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self._folder, self._home = folder, Path(spec.origin).parent
        self.servers: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.master = self._started("master.Master", r"Starting Spark master at (\S+)", *ports)
        for number in range(WORKERS):
            own = ["--cores", "1", "--memory", "2g", "--work-dir", str(self._folder / f"work-{number}")]
            self._started("worker.Worker", r"Successfully (registered)", *ports, *own, self.master)

    def _started(self, kind: str, sign: str, *arguments: str) -> str:
        log = self._folder / f"log-{len(self.servers)}"
        environment = {**os.environ, "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with log.open("wb") as file:
            self.servers.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))
        pause = threading.Event()
        for _ in range(_PATIENCE * 20):
            found = re.search(sign, log.read_text())
            if found:
                return found[1]
            assert self.servers[-1].poll() is None, log.read_text()
            pause.wait(0.05)
        raise AssertionError(f"{kind} did not start: {log.read_text()}")

    def executors(self) -> list[int]:
        """The process ids of the executors."""
        found: list[int] = []
        for server in self.servers:
            for task in Path(f"/proc/{server.pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        return [pid for pid in sorted(found) if b"CoarseGrainedExecutorBackend" in command_of(pid)]

    def end(self) -> None:
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A running cluster, whose logs are in ``folder``."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()
