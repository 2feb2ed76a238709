"""A model that is measured: what `predict` says of the texts of a table, its servers and their clients."""

import json
import os
import statistics
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from bench.common.processes import timed
from bench.common.record import Record, Row
from bench.common.turns import Worker
from bench.serve.server import Server
from brimful.tables.table_files import read_table

FORMATS = ("auto", "fp32", "bf16", "int8")
PEERS = ("transformers", "openvino", "tfidf")
TOLERANCE = {"fp32": 1e-5, "auto": 2e-2, "bf16": 2e-2, "int8": 2e-2, **dict.fromkeys(PEERS, 1.0)}
"""How far scores may be from `predict`'s. Peers know no temperature; their labels are compared."""
CONNECTIONS = (2, 8, 32, 128)
"""Of the closed loops, of which the best is the capacity."""


class Side:
    """A model served by Brimful in a number format, or by a peer (peers.py); of tfidf, its training table.

    Attributes:
        name: the format, or the peer.
        served: the folder that is served: the model, or its export for this side.
        texts, labels: of the test table.
    """

    def __init__(self, model: Path, name: str, options: Namespace, folder: Path, record: Record) -> None:
        self.model, self.name, self.options = model, name, options
        self.served: Path = vars(options).get(name) or model
        self.folder, self.record, self.seed = folder, record, options.seed
        table = read_table(options.test, labelled=True)
        self.texts, self.labels = list(table.texts), list(table.labels or [])
        self.file = folder / "texts.json"
        self.file.write_text(json.dumps(self.texts), encoding="utf-8")

    @property
    def format(self) -> str:
        """Of `predict`, whose scores this side should have."""
        return self.name if self.name in FORMATS else "fp32"

    def predict(self, texts: list[str], output: Path) -> float:
        """Run `brimful predict`, or for tfidf what answers in its place; the CPU seconds."""
        given = self.folder / "input.jsonl"
        given.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        model = self.model if self.name in PEERS else self.served
        if self.name == "tfidf":
            command = [*self.peer, str(given), str(output)]
        else:
            command = [sys.executable, "-m", "brimful", "predict", "--precision", self.format, "--json"]
            command += ["--model", str(model), "--input", str(given), "--output", str(output)]
        return timed(command, os.sched_getaffinity(0)).cpu

    @property
    def peer(self) -> list[str]:
        """The command of a peer."""
        program = Path(__file__).with_name("peers.py")
        return [str(self.options.peers), str(program), self.name, str(self.served)]

    def expected(self) -> Path:
        """The file of what `predict` says of each text."""
        file = self.folder / f"{self.model.name}-{self.format}.jsonl"
        if not file.exists():
            self.predict(self.texts, file)
        return file

    def accuracy(self) -> float:
        """The share of right labels of `predict`."""
        rows = [json.loads(line) for line in self.expected().read_text(encoding="utf-8").splitlines()]
        return statistics.fmean(
            row["prediction"] == label for row, label in zip(rows, self.labels, strict=True)
        )

    def serve(self) -> Server:
        """Start its server.

        Raises:
            ServerError: it does not become ready, as with a number format that the processor does not have.
        """
        if self.name in FORMATS:
            command = [sys.executable, "-m", "brimful", "serve", str(self.served), "--port", "0"]
            command += ["--precision", self.name]
        else:
            command = self.peer
        return Server(command, self.folder / "server.log")

    def client(self, server: Server, batch: int = 1) -> Worker:
        """Start a client of a server, and warm both up."""
        client = Worker("bench.serve.client")
        client.ask("setup", address=server.address, texts=str(self.file), batch=batch, seed=self.seed)
        client.ask("closed", connections=8, duration=1.0, seed=self.seed)
        return client

    def load(self, server: Server, client: Worker, command: str, **values: Any) -> Row:
        """A load's summary, with the server's CPU seconds for 1,000 texts."""
        self.seed += 1
        before = server.cpu_seconds()
        found = client.ask(command, seed=self.seed, **values)
        cpu = server.cpu_seconds() - before
        return found | {"server_cpu_per_1000": 1000 * cpu / found["texts"] if found["texts"] else None}

    def check(self, client: Worker, *others: Path) -> Row:
        """Compare a client's answers with what `predict` says, or with other files of what it said."""
        files = [str(file) for file in others or [self.expected()]]
        return client.ask("check", expected=files, tolerance=TOLERANCE[self.name])

    def add(self, **row: Any) -> None:
        """Keep a row."""
        self.record.add({"model": self.model.name, "side": self.name, **row})
