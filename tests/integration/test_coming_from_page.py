"""The commands of docs/coming-from.md are run, on little data and for few updates."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from brimful import Encoder
from brimful.cli.main import main
from brimful.hf.folders import save_model
from builders.augmentation import ENGLISH, masked_lm

PAGE = (Path(__file__).parents[2] / "docs/coming-from.md").read_text(encoding="utf-8")
BASH = "".join(re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
PYTHON = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
LENGTHS = {"--epochs", "--layers.epochs", "--logits.epochs", "--copies", "--trainer.steps"}


@pytest.mark.slow
def test_each_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(ENGLISH, 9)) for _ in range(160)]
    Path("text.txt").write_text("\n".join(texts[:80]))
    Path("new.txt").write_text("\n".join(texts[:9]))
    for name, rows in (("train", texts[:100]), ("dev", texts[100:130]), ("test", texts[130:])):
        lines = [f"{text},{'good' if 'cat' in text else 'bad'}\n" for text in rows]
        Path(f"{name}.csv").write_text("".join(["text,label\n", *lines]))
    encoder, head = masked_lm(hidden_size=384, heads=12)
    save_model("bert", encoder, head)
    encoder.save("folder")

    for command in re.sub(r"\\\n\s*", "", BASH).splitlines():
        _, *words = shlex.split(command)
        for option in LENGTHS.intersection(words):
            words[words.index(option) + 1] = "1"
        assert main(words) == 0, command

    names: dict[str, np.ndarray] = {}
    exec(PYTHON, names)
    assert np.load("vectors.npy").shape[1] == names["vectors"].shape[1]
    assert Encoder.load("general").config.hidden_size == 312
