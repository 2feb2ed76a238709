"""The version of cleaning: it follows the code, and another one makes `prepare` clean again."""

import subprocess
import sys
from pathlib import Path

from brimful import prepare
from brimful.base.seals import MANIFEST
from brimful.base.storage import read_json
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.pipeline.preparing import CLEANING


def test_every_module_that_cleaning_uses_is_in_its_version(monkeypatch) -> None:
    """A changed module of ours that a cleaned text depends on changes the version: none can be forgotten."""
    seen = set()
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **kw: seen.add(path.resolve()) or read(path, **kw))
    cleaning_version.__wrapped__()
    used = "import sys, brimful.corpus.cleaning.clean, brimful.corpus.reading.read; "
    used += "print(*[m.__file__ for n, m in sys.modules.items() if n.startswith('brimful') and m.__file__])"
    done = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=True)
    # What these do is no rule: errors, settings, extras, the compiling of loops, the choice of fast forms.
    ground = {"__init__.py", "errors.py", "config.py", "compiled.py", "console.py", "storage.py"}
    ground |= {"machine.py", "types.py", "environment.py", "fast_forms.py"}
    files = {Path(file).resolve() for file in done.stdout.split()}
    assert {file for file in files if file.name not in ground} <= seen


def test_a_corpus_of_other_rules_is_cleaned_again(tmp_path: Path, capsys, monkeypatch) -> None:
    text, out = tmp_path / "a.txt", tmp_path / "out"
    text.write_text("The quick brown fox jumps over the lazy dog.\n" * 9)
    arguments = {"paths": (str(text),), "out": str(out), "tokenizer": "train:100", "workers": 1}
    with monkeypatch.context() as patch:
        for module in ("cleaning", "preparing"):
            patch.setattr(f"brimful.corpus.pipeline.{module}.cleaning_version", lambda: "0")
        prepare(**arguments)
    record = out / "text" / "part-00000.json"
    before = read_json(record)["config_hash"]
    prepare(**arguments)
    assert "cleaned again" in capsys.readouterr().err
    assert read_json(record)["config_hash"] != before
    assert read_json(out / MANIFEST)["settings"][CLEANING] == cleaning_version()
    prepare(**arguments)
    assert "cleaned again" not in capsys.readouterr().err
