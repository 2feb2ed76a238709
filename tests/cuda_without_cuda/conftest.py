"""Trainings on the recording device, each in a process of the Python that has a CUDA build of torch."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.common.recorder import device

SCENARIO = Path(__file__).with_name("scenario.py")
CONFIG = {
    "trainer.steps": 12,
    "trainer.log_every": 4,
    "trainer.checkpoint_every": 0,
    "model": "tiny",
    "rows_per_update": 8,
    "rows_per_micro_batch": 4,
    "packing.capacity": 512,
    "validation_tokens": 2000,
}
"""12 updates of two micro-batches; their lines of metrics follow updates 4, 8 and 12."""


@dataclass
class Answer:
    """What a scenario did.

    Attributes:
        status: of the process.
        said: what was printed.
        values: what the scenario wrote; empty if it failed.
    """

    status: int
    said: str
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def updates(self) -> list[dict[str, Any]]:
        """What each update did on the device."""
        assert self.values, self.said
        return self.values["updates"]

    def steady(
        self, *, after: int = 2, log_every: int = 4, but: tuple[int, ...] = ()
    ) -> list[dict[str, Any]]:
        """The updates beyond the first `after` that write nothing."""
        kept = [update for update in self.updates if update["step"] >= after]
        return [u for u in kept if (u["step"] + 1) % log_every and u["step"] + 1 not in but]


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the recording device."""
    if missing := device.lacks():
        pytest.skip(f"needs {missing}")
    return device.build(tmp_path_factory.mktemp("recorder"))


Run = Callable[..., Answer]


@pytest.fixture
def train(recorder: Path, corpus_dir: Path, tmp_path: Path) -> Run:
    """Train on the device.

    Args:
        config: changes of `CONFIG`.
        settings: of the device; see `device.environment`.
        variables: further environment variables.
        options: of the scenario.
    """

    def run(
        config: dict[str, Any] | None = None,
        *,
        settings: dict[str, int] | None = None,
        variables: dict[str, str] | None = None,
        seconds: float = 900,
        **options: Any,
    ) -> Answer:
        path = tmp_path / "options.json"
        known = {"data": str(corpus_dir), "out": str(tmp_path / "run"), "config": CONFIG | (config or {})}
        path.write_text(json.dumps(known | options))
        environment = device.environment(recorder, **({"devices": 1} | (settings or {})))
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            environment.pop(name, None)
        done = subprocess.run(
            [str(device.python()), str(SCENARIO), str(path)],
            cwd=device.ROOT,
            env=environment | (variables or {}),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        answer = path.with_suffix(".out.json")
        values = json.loads(answer.read_text()) if answer.exists() else {}
        answer.unlink(missing_ok=True)
        return Answer(done.returncode, done.stdout + done.stderr, values)

    return run


@pytest.fixture
def play(recorder: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run the command line `brimful ...` on the device."""

    def run(
        *arguments: object, settings: dict[str, int] | None = None, seconds: float = 900
    ) -> subprocess.CompletedProcess:
        # As the command does, but without unloading the device, which may abort.
        script = (
            "import os, sys; from brimful.cli.main import main; status = main(sys.argv[1:]);"
            "sys.stdout.flush(); sys.stderr.flush(); os._exit(status or 0)"
        )
        return subprocess.run(
            [str(device.python()), "-c", script, *map(str, arguments)],
            cwd=device.ROOT,
            env=device.environment(recorder, **(settings or {})),
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    return run
