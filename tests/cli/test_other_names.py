"""An option that is called as in other tools names the one that is meant."""

import pytest

from brimful.cli.main import load_schema, main
from brimful.cli.options import options_of
from brimful.cli.other_names import MEANT
from brimful.cli.verbs import VERBS


@pytest.mark.parametrize(
    ("verb", "given", "meant"),
    [
        ("pretrain", "--lr", "--optimizer.learning-rate"),
        ("pretrain", "--optimizer.lr", "--optimizer.learning-rate"),
        ("finetune", "--lr", "--learning-rates"),
        ("evaluate", "--lr", "--learning-rates"),
        ("pretrain", "--bs", "--rows-per-update"),
        ("finetune", "--batch-size=8", "--batch"),
        ("pretrain", "--epochs", "--trainer.steps"),
        ("finetune", "--num_train_epochs", "--epochs"),
        ("finetune", "--max_seq_length", "--max-length"),
        ("pretrain", "--max_seq_length", "--packing.max-length"),
        ("finetune", "--output_dir", "--out"),
        ("predict", "--output_dir", "--output"),
        ("export", "--model_name_or_path", "RUN"),
        ("finetune", "--model_name_or_path", "--encoder"),
        ("pretrain", "--model_name_or_path", "--start-from"),
        ("finetune", "--warmup_ratio", "--schedule.warmup"),
        ("finetune", "--fp16", "--precision"),
        ("pretrain", "--gradient_accumulation_steps", "--rows-per-micro-batch"),
        ("finetune", "--gradient-accumulation-steps", "--micro-batch-tokens"),
        ("prepare", "--num-proc", "--workers"),
        ("prepare", "--vocab-size", "--tokenizer"),
        ("pretrain", "--nonsense", None),
        ("report", "--lr", None),
    ],
)
def test_what_is_meant(verb: str, given: str, meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, given, "1"]) == 2
    line = capsys.readouterr().err
    assert (f"did you mean {meant}?" if meant else f"unknown option {given} (") in line


def test_every_meaning_is_an_option() -> None:
    flags = {flag for verb in VERBS for flag in options_of(load_schema(verb))}
    names = {name for names in MEANT.values() for name in names}
    assert {name for name in names if name not in flags and f"--{name}" not in flags} == set()
