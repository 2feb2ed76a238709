"""A command line becomes a configuration: values of every kind, names, files under flags, and one line for a
mistake."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from brimful.base.config import Argument
from brimful.base.errors import BrimfulError, UsageError
from brimful.cli.arguments import parse
from brimful.cli.main import load_schema, main


@dataclass(frozen=True, kw_only=True)
class Range:
    first: int
    last: int = 9

    @classmethod
    def from_text(cls, text: str) -> "Range":
        first, last = text.split("-")
        return cls(first=int(first), last=int(last))


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    tidy: bool = True
    colour: Literal["red", "blue"] = "red"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Do it."""

    paths: Annotated[tuple[str, ...], Argument(positional=True)] = ()
    out: str
    name: str | None = "n"
    steps: Literal["auto"] | int | None = None
    depths: tuple[int | Literal["none"], ...] = (1,)
    epochs: float | tuple[float, ...] = 1.0
    fast: bool = False
    trial: bool | Literal["measured"] = False
    ranges: Annotated[tuple[Range, ...], Argument(form="FIRST-LAST ...")] = ()
    inner: Inner = Inner(rate=0.25)
    shape: Annotated[Inner, Argument(group="form")] = Inner()


def parsed(*arguments: str) -> Any:
    return parse(Settings, arguments, "brimful it")[0]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--out o", {}),
        ("--out=o=p", {"out": "o=p"}),
        ("--out o --out p", {"out": "p"}),
        ("a b --out o c", {"paths": ("a", "b", "c")}),
        ("--out o --name None", {"name": None}),
        ("--out o --steps auto", {"steps": "auto"}),
        ("--out o --steps -3", {"steps": -3}),
        ("--out o --depths 2 none", {"depths": (2, "none")}),
        ("--out o --depths", {"depths": ()}),
        ("--out o --epochs 2", {"epochs": 2.0}),
        ("--out o --epochs 2 1e-1", {"epochs": (2.0, 0.1)}),
        ("--fast a --out o", {"fast": True, "paths": ("a",)}),
        ("--fast --no-fast --out o", {"fast": False}),
        ("--trial a --out o", {"trial": True, "paths": ("a",)}),
        ("--trial measured a --out o", {"trial": "measured", "paths": ("a",)}),
        ("--out o --ranges 1-2 3-4", {"ranges": (Range(first=1, last=2), Range(first=3, last=4))}),
        ("--out o --inner.colour blue", {"inner": Inner(rate=0.25, colour="blue")}),
        ("--out o --inner.no-tidy", {"inner": Inner(rate=0.25, tidy=False)}),
        ("--out o --form.rate 1", {"shape": Inner(rate=1.0)}),
    ],
)
def test_values_of_every_kind(line, values):
    assert parsed(*line.split()) == Settings(**{"out": "o", **values})


def test_the_options_of_every_verb():
    _, common, _ = parse(Settings, ["--out", "o", "--json", "--debug"], "brimful it")
    assert (common.config, common.json, common.debug) == (None, True, True)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        # an unknown option, and the nearest one
        ("pretrain --trainer.stesp 3", ["--trainer.stesp", "mean --trainer.steps?"]),
        ("pretrain --stesp 3", ["--stesp", "mean --trainer.steps?"]),
        ("pretrain --packing.capcity=3", ["--packing.capcity", "mean --packing.capacity?"]),
        ("pretrain --shape.heads 3", ["--shape.heads", "mean --model.heads?"]),
        ("finetune --learning_rate 1", ["--learning-rate", "mean --learning-rates?"]),
        ("evaluate --encoder a", ["mean ENCODERS?"]),
        ("serve --models a", ["mean MODELS?"]),
        ("finetune --ENCODER a", ["mean --encoder?"]),
        ("export --modl a", ["unknown option --modl (brimful export --help)"]),
        ("pretrain --lr 1", ["--lr (brimful"]),
        # an argument too many
        ("pretrain extra", ["unexpected argument extra"]),
        ("pretrain --no-dry-run=3", ["--no-dry-run takes no value"]),
        ("pack --histogram x --capacity 3 4", ["unexpected argument 4"]),
        ("export a b --out c", ["unexpected argument b"]),
        ("pack --histogram a --depth 1 --depth 2", ["--depth is given twice"]),
        # an option that is missing
        ("finetune", ["--encoder", "--train", "--out"]),
        ("predict --model a", ["predict needs --input and --output (brimful predict --help)"]),
        ("export --out b", ["export needs RUN"]),
        ("pack", ["--data"]),
        # a value that is missing or wrong
        ("pack --config", ["--config needs a value"]),
        ("pretrain --trainer.steps --json", ["--trainer.steps needs a value: a whole number"]),
        ("prepare a --out b --encoding", ["--read.encoding needs a value"]),
        ("pretrain --trainer.steps many", ["--trainer.steps takes a whole number, not 'many'"]),
        ("pretrain --masking.rate=x", ["--masking.rate takes a number, not 'x'"]),
        ("pretrain --model huge", ["--model takes tiny, mini, small, base or large, not 'huge'"]),
        ("pack --histogram a --depth 1 x", ["--depth takes a whole number or none, not 'x'"]),
        ("pretrain --phases 1:x", ["--phases takes STEPS:MAX_LENGTH[:SIZE] ..., not '1:x'"]),
        ("distil --layers.losses.layer-map last 1", ["--layers.losses.layer-map takes", "not 'last"]),
        ("serve m --json=maybe", ["--json takes True or False, not 'maybe'"]),
    ],
)
def test_a_wrong_argument_is_one_line(line, named, capsys):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("brimful: ")
    assert err.count("\n") == 1
    assert all(name in err for name in named), err


def test_an_option_of_one_group_may_go_without_it():
    line = "a --out o --split line --encoding=gb18030 --no-garbage --lines 3 --max_undecodable 1"
    config = parse(load_schema("prepare"), line.split(), "brimful prepare")[0]
    assert (config.read.split, config.read.encoding) == ("line", "gb18030")
    assert (config.clean.garbage, config.clean.max_undecodable, config.dedup.lines) == (False, 1.0, 3)
    with pytest.raises(UsageError, match="unknown option --rate"):
        parsed("--out", "o", "--rate", "1")  # two groups have it


def test_flags_stand_over_the_file(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("out: o\nfast: true\ndepths: [2, none]\nranges: [{first: 1}]\ninner: {colour: blue}\n")
    expected = {"out": "o", "fast": True, "depths": (2, "none"), "ranges": (Range(first=1),)}
    for given in (["--config", str(path)], [f"--config={path}"]):
        assert parsed(*given) == Settings(**expected, inner=Inner(rate=0.25, colour="blue"))
        more = ["--inner.rate", "1", "--no-fast", "--depths", "3", "--name", "None"]
        assert parsed(*given, *more) == Settings(
            **expected | {"fast": False, "depths": (3,), "name": None}, inner=Inner(rate=1.0, colour="blue")
        )


def test_a_required_option_may_come_from_either(tmp_path, capsys):
    path = tmp_path / "predict.yaml"
    path.write_text("{model: m, input: i}")
    assert main(["predict", "--config", str(path)]) == 2
    assert "predict needs --output (" in capsys.readouterr().err
    config = parse(load_schema("predict"), ["--config", str(path), "--output", "o"], "brimful predict")[0]
    assert (config.model, config.input, config.output) == ("m", "i", "o")


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("packing: {capcity: 3}", "unknown key packing.capcity: did you mean 'capacity'?"),
        ("dta: x", "unknown key dta: did you mean 'data'?"),
        ("trainer: {steps: x}", "key trainer.steps: expected int, got str (trainer.steps in "),
        ("{seed: 1, packing: {max_length: 1}}", " (packing.max_length in "),
        ("- x", "must hold a mapping"),
    ],
)
def test_a_wrong_configuration_file_is_named(tmp_path, yaml, said):
    path = tmp_path / "a.yaml"
    path.write_text(yaml)
    with pytest.raises(BrimfulError) as error:
        parse(load_schema("pretrain"), ["--config", str(path)], "brimful pretrain")
    assert said in str(error.value)
    assert str(path) in str(error.value)
