"""YAML files of settings: they are read, or one line names the file and the key or line."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from brimful.base.config import _Dumper, read_yaml
from brimful.base.errors import BrimfulError
from brimful.cli.main import main

ODD = st.sampled_from(["1e-3", "None", "nan", "auto", "-1", "~", "a:b", "\ud800", "\0", "1" * 5000])
SCALARS = st.none() | st.booleans() | st.integers() | st.integers(min_value=10**18) | st.floats() | ODD
SCALARS |= st.text() | st.dates()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | SCALARS, inner, max_size=3),
)


def read_or_refuse(path: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        return read_yaml(path), ""
    except BrimfulError as error:
        return None, str(error)


@given(VALUES, st.sampled_from(["utf-8", "utf-16"]))
@example("\x85", "utf-16")
@example("\u2028 \n a\r", "utf-16")
@example("\udcd3", "utf-8")
def test_what_is_written_is_read(tmp_path_factory, value, charset):
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    text = yaml.dump({"key": value}, Dumper=_Dumper, allow_unicode=charset == "utf-16", sort_keys=False)
    path.write_bytes(text.encode(charset, "surrogatepass"))
    read, refused = read_or_refuse(path)
    if read is None:
        known = r"U\+(0000|D[89A-F]..) may not|Exceeds the limit|not UTF-8|characters are not allowed"
        assert re.search(known, refused), refused
        assert str(path) in refused
    else:
        assert repr(read) == repr({"key": value})


REFUSED = [
    ("a: 1\nb: \x07\n", "the character U+0007 may not stand in YAML"),
    ("a: 1\nb: !!float x\n", "the value is no float"),
    ("a: 1\nb: 2020-13-45\n", "the value is no timestamp"),
    ("a: 1\nb: !!binary eA==\n", "no setting is a binary"),
    ("a: 1\nb: !!set {x}\n", "no setting is a set"),
    ("a: &a [x, y]\nb: *a\n", "an alias: write the value"),
    ("trainer:\n  steps: 1\n  log_every: 2\n  steps: 3\n", "the key steps stands 2 times"),
]
FOREIGN = ("- a\n- b\n", "word\n", "a: [\n", "\udcff\udcfe\0", "a: !!python/object/apply:os.getcwd []\n")
REFUSED += [(text, "") for text in FOREIGN]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_an_error_names_its_file_and_line(tmp_path, text, said):
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BrimfulError) as error:
        read_yaml(path)
    assert said in str(error.value)
    assert (f"{path}, line 2" if said else str(path)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("verb", "text", "said"),
    [
        ("pretrain", "phases: 0.5", "key phases"),
        ("pretrain", "{data: d, out: o, packing: {max_length: 2}}", "packing.max_length is 2"),
        ("predict", "{model: nowhere, input: i.jsonl, output: o.jsonl}", "nowhere holds no model"),
        ("prepare", "{paths: [absent.txt], out: o, tokenizer: train:300}", "absent.txt does not exist"),
        ("finetune", "{encoder: e, train: t.tsv, out: o, batch: 0, test: t.tsv}", "batch is 0"),
    ],
)
def test_a_setting_of_a_file_that_the_verb_refuses_is_named(tmp_path, monkeypatch, capsys, verb, text, said):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(text)
    assert main([verb, "--config", "a.yaml"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("brimful: ")]
    assert said in line
