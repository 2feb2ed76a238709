"""Variables that launchers set: what is wrong in them is one line that names the variable."""

import pytest

from brimful.base.environment import rank_and_size, read_number
from brimful.base.errors import BrimfulError
from brimful.cli.main import main


@pytest.mark.parametrize("said", ["abc", "", "-1", "1.0", " 1", "１", "9" * 5000])
def test_what_is_no_number_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", said)
    with pytest.raises(BrimfulError, match="variable RANK is "):
        read_number("RANK", 0)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"WORLD_SIZE": "2"}, "not RANK, MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "1"}, "RANK=1 of WORLD_SIZE=1"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 of WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "y"}, "MASTER_PORT"),
    ],
)
def test_ranks_that_contradict_each_other(
    values: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert rank_and_size() == (0, 1)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BrimfulError, match=named):
        rank_and_size()


def test_a_verb_says_it_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "abc")
    assert main(["inspect", "nowhere", "--verify"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "RANK is 'abc'" in line
