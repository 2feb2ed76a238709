"""`brimful --print-completion`: the script completes verbs, each verb's own options, and files."""

import shutil
import subprocess

import pytest

from brimful.cli.main import main
from brimful.cli.verbs import VERBS


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    import contextlib
    import io

    found = {}
    for shell in ("bash", "zsh"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["--print-completion", shell]) == 0
        found[shell] = out.getvalue()
    return found


def completed(script: str, line: list[str]) -> list[str]:
    """What bash offers for the last word of a command line."""
    words = " ".join(f"'{word}'" for word in line)
    ask = f"COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _brimful; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    said = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    return said.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_verbs_and_their_options(scripts: dict[str, str]) -> None:
    script = scripts["bash"]
    assert completed(script, ["brimful", "pre"]) == ["prepare", "pretrain", "predict"]
    assert set(VERBS) < set(completed(script, ["brimful", ""]))
    assert "--trainer.steps" in completed(script, ["brimful", "pretrain", "--trainer.s"])
    assert completed(script, ["brimful", "pack", "--hist"]) == ["--histogram"]
    assert "--teacher" in completed(script, ["brimful", "distil", "--tea"])
    assert completed(script, ["brimful", "pretrain", "da"]) == []  # bash completes files then


def test_zsh_reads_the_same(scripts: dict[str, str]) -> None:
    assert scripts["zsh"].endswith(scripts["bash"])
    assert scripts["zsh"].startswith("autoload")


@pytest.mark.parametrize("arguments", [[], ["fish"], ["bash", "zsh"]])
def test_another_shell_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("brimful: --print-completion ")
    assert said.count("\n") == 1
