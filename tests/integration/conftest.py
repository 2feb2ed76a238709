"""Whole verbs on generated text, through the real command line."""

from pathlib import Path
from typing import Any

import pytest

from brimful.cli.main import main
from builders.shared import made_once
from builders.verbs import SMALL, Answer, Call, chained_documents, command, start, write_table

RUNS = ("apart", "here")


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a verb's command line in this process."""

    def run_here(verb: str, *arguments: Any) -> Answer:
        capfd.readouterr()
        code = main([verb, *map(str, arguments), "--json"])
        return Answer(code, *capfd.readouterr())

    return run_here


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return chained_documents(500, seed=1)


@pytest.fixture(scope="session")
def chained(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared corpus of `documents`."""

    def make(folder: Path) -> None:
        texts = write_table(folder / "texts.jsonl", [{"text": text} for text in documents])
        assert main(["prepare", texts, "--out", str(folder / "data"), "--workers", "1"]) == 0

    return made_once(tmp_path_factory, "chained", make) / "data"


@pytest.fixture(scope="session")
def pretrained_twice(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two run directories of pretraining with seed 3, by this process and another one."""

    def make(folder: Path) -> None:
        apart, here = (
            command("pretrain", "--data", chained, "--out", folder / name, "--seed", 3, *SMALL)
            for name in RUNS
        )
        with start(apart) as process:
            assert main(here[here.index("pretrain") :]) == 0
            _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error.decode()

    folder = made_once(tmp_path_factory, "pretrained", make)
    return [folder / name for name in RUNS]


@pytest.fixture(scope="session")
def pretrained(pretrained_twice: list[Path]) -> Path:
    """A run directory of pretraining with seed 3, made in one go."""
    return pretrained_twice[0]


@pytest.fixture(scope="session")
def other(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus with the tokenizer of `chained`."""
    folder = tmp_path_factory.mktemp("other")
    texts = write_table(folder / "texts.jsonl", [{"text": text} for text in chained_documents(200, seed=2)])
    arguments = [texts, "--out", str(folder / "other"), "--tokenizer", str(chained), "--workers", "1"]
    assert main(["prepare", *arguments]) == 0
    return folder / "other"
