"""The wheel and the sdist: built here, and the wheel tried in a clean environment of each Python at hand.

An environment of this Python takes torch and the rest of the core from here, and fetches nothing. Others
fetch them (0.4 GB each), so they are tried only with BRIMFUL_FETCH=1.
"""

import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from brimful.cli.main import VERBS
from brimful.version import VERSION

ROOT = Path(__file__).parents[1]
OURS = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = [f"python3.{minor}" for minor in range(11, 16)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def at_hand(name: str) -> str | None:
    """The path of a Python: this one, on PATH, or where pyenv keeps them."""
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{name[6:]}.*/bin/{name}"))
    return sys.executable if name == OURS else str(pyenv[-1]) if pyenv else shutil.which(name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_holds_the_package_and_the_sdist_its_tests(built: Path) -> None:
    with zipfile.ZipFile(built / f"brimful-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    files = [path for path in (ROOT / "brimful").rglob("*") if path.is_file()]
    here = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert {name for name in names if not name.startswith("brimful-")} == here
    assert "brimful/py.typed" in names
    with tarfile.open(built / f"brimful-{VERSION}.tar.gz") as sdist:
        members = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/test_wheel.py"} <= members


@pytest.mark.parametrize("name", PYTHONS)
def test_a_clean_environment_has_every_verb(name: str, built: Path, tmp_path: Path) -> None:
    python = at_hand(name)
    if python is None:
        pytest.skip(f"there is no {name} here")
    if name != OURS and "BRIMFUL_FETCH" not in os.environ:
        pytest.skip(f"BRIMFUL_FETCH=1 fetches what Brimful needs for {name} (0.4 GB)")
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True)
    own = tmp_path / "env/bin/python"
    install = [str(own), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    if name == OURS:
        install += ["--no-deps"]
        (packages,) = (tmp_path / "env/lib").glob("*/site-packages")
        (packages / "core.pth").write_text(str(Path(pytest.__file__).parents[1]))
    subprocess.run([*install, *map(str, built.glob("*.whl"))], check=True)

    def brimful(*arguments: str) -> str:
        line = [str(tmp_path / "env/bin/brimful"), *arguments]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert brimful("--version") == f"brimful {VERSION}\n"
    for verb in VERBS:
        assert f"usage: brimful {verb}" in brimful(verb, "--help")
    rng = random.Random(0)
    rows = [(" ".join(rng.choices(["the", "room", "was", "price", "book"], k=12)), i % 2) for i in range(300)]
    texts = [f"{text} {('awful', 'great')[label]}" for text, label in rows]
    (tmp_path / "text.txt").write_text("\n".join(texts))
    table = "".join(f"{text}\t{label}\n" for text, (_, label) in zip(texts[:90], rows, strict=False))
    for part in ("train", "test"):
        (tmp_path / f"{part}.tsv").write_text("text\tlabel\n" + table)
    brimful("prepare", "text.txt", "--read.split", "line", "--out", "data", "--tokenizer", "train:300")
    shape = ["--model", "tiny", "--rows-per-update", "8", "--validation-tokens", "200"]
    brimful("pretrain", "--data", "data", "--out", "runs/p", "--trainer.steps", "3", *shape)
    tables = ["--train", "train.tsv", "--test", "test.tsv", "--ladder", "none"]
    brimful("finetune", "--encoder", "runs/p", *tables, "--out", "runs/f", "--learning-rates", "1e-3")
    brimful("predict", "--model", "runs/f", "--input", "test.tsv", "--output", "labels.tsv")
    assert len((tmp_path / "labels.tsv").read_text().splitlines()) == 91
