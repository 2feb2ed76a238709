"""The library that sums, and what nvidia-smi says."""

import os
import stat

import pytest

from brimful.base.errors import BrimfulError
from brimful.machine.host import collectives, gpus, nvidia_smi


def test_this_host():
    assert "torch" in collectives() or "CCL" in collectives()


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Makes a shell script nvidia-smi."""

    def install(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return install


def test_gpus_by_their_uuids(driver):
    driver('echo "GPU-aa, 0, 93"; echo "GPU-bb, 1, [N/A]"')
    assert gpus() == {"aa": (0, 93), "bb": (1, 0)}


def test_a_driver_that_fails_or_is_not_there(driver, monkeypatch):
    driver("exit 9")
    with pytest.raises(BrimfulError, match="exit status 9"):
        nvidia_smi("topo", "-m")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BrimfulError, match="nvidia-smi"):
        gpus()
