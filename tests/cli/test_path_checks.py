"""Wrong files and folders of a command are refused before torch is loaded, in the verb's own words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.cli.arguments import parse
from brimful.cli.main import load_schema, load_verb
from brimful.cli.path_checks import check_paths
from brimful.hf.folders import save_model
from builders.encoders import small, word_tokenizer

FINETUNE = "finetune --encoder encoder --train table.tsv --out new"
NO_MODEL = "none holds no model: there is no such folder"
MISTAKES = {
    "pretrain --data none:2 --out new --trainer.steps 1": "no prepared corpus: none is not a folder; make",
    "pretrain --resume full": "full is not a run directory: it has no config.yaml; --resume takes",
    "finetune --encoder none --train table.tsv --out new": NO_MODEL,
    f"{FINETUNE} --train none.tsv": "cannot read none.tsv: No such file or directory",
    f"{FINETUNE} --out run": "run is not empty; continue with `brimful finetune --resume run`, or choose",
    "distil-encoder --teacher encoder --data full --out new": "full holds no finished corpus (no MANIFEST",
    "evaluate encoder --text none --out new": "none is not a prepared folder; make one with: brimful prepare",
    "predict --model encoder --input none.txt --output new.npy": "cannot read none.txt: No such file",
    "predict --model encoder --input table.tsv --output a.npy": "cannot write a.npy: it is a folder or a",
    "serve encoder none --dry-run": NO_MODEL,
    "export encoder --out full": "full is not empty and is not an earlier export; choose another --out",
}
ACCEPTED = (
    f"{FINETUNE} --dev none --test folder --more-tests *.tsv table[1].tsv --out empty",
    "finetune --resume finished",
    "pretrain --data corpus:2 corpus:x --out new --trainer.steps 1",
    "pretrain --config mixture.yaml",
    "predict --model encoder --input - --output -",
    "export begun --out exported --step 5",
)
EMPTY = ("run/config.yaml", "finished/summary.json", "begun/start/config.json", "exported/export.json")
EMPTY += ("corpus/MANIFEST.json", "corpus:x/MANIFEST.json", "full/a", "a.npy/a", "empty/.lock")
TABLES = dict.fromkeys(("table.tsv", "table[1].tsv", "folder/a.csv"), "text\tlabel\none\tyes\ntwo\tno\n")
FILES = {
    **dict.fromkeys(EMPTY, ""),
    **TABLES,
    "wrong.yaml": "{encoder: encoder, train: none.tsv, test: none, out: new}",
    "mixture.yaml": "{data: [{path: corpus, weight: 2}], out: new}",
    "stub/torch.py": "raise ImportError('torch is loaded')",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer()
    save_model(folder / "encoder", encoder)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(place: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which ends where it loads torch."""
    environment |= {"PYTHONPATH": f"{place / 'stub'}:{Path(__file__).parents[2]}"}
    environment, command = os.environ | environment, [sys.executable, "-m", "brimful", *line.split()]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("line", "message"), MISTAKES.items())
def test_a_mistake_is_one_line_and_costs_no_torch(place, monkeypatch, line, message):
    done = run(place, line)
    said = done.stderr.replace(f"{place}/", "")
    assert (done.returncode, done.stdout, said.count("\n"), message in said) == (1, "", 1, True)
    monkeypatch.chdir(place)
    verb, *words = line.split()
    with pytest.raises(BrimfulError) as late:
        load_verb(verb).run(parse(load_schema(verb), words, verb)[0])
    assert said == f"brimful: {late.value}\n".replace(f"{place}/", "")


@pytest.mark.parametrize("line", ACCEPTED)
def test_what_a_verb_accepts_gets_through(place, monkeypatch, line):
    monkeypatch.chdir(place)
    verb, *words = line.split()
    check_paths(verb, parse(load_schema(verb), words, verb)[0], None, set())


def test_a_path_of_a_file_is_named_with_it(place):
    assert "directory (train in wrong.yaml)\n" in run(place, "finetune --config wrong.yaml").stderr
    assert "directory\n" in run(place, "finetune --config wrong.yaml --train gone.tsv").stderr


def test_ranks_leave_paths_to_the_verb(place):
    assert "torch is loaded" in run(place, f"{FINETUNE} --out full", RANK="0").stderr
