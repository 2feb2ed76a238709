"""The unit and the image of a server: the linter of systemd finds nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
SYSTEMD = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="needs systemd-analyze")


def found(*command: str | None) -> tuple[int, str]:
    """The exit status of a linter, and what it says."""
    assert command[0] is not None
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_image_runs_as_nobody_and_checks_its_health():
    lines = (RECIPES / "Dockerfile").read_text().splitlines()
    last_stage = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in last_stage
    assert any(line.startswith("HEALTHCHECK ") for line in last_stage)


@pytest.fixture
def unit(tmp_path):
    """The unit, with a program that exists here: systemd looks whether it can be run."""
    path = tmp_path / "brimful.service"
    text = (RECIPES / "serve/brimful.service").read_text()
    path.write_text(text.replace("/opt/brimful/bin/brimful", sys.executable))
    return path


@needs_systemd
def test_systemd_reads_the_unit(unit):
    assert found(SYSTEMD, "verify", str(unit)) == (0, "")


@needs_systemd
def test_the_unit_is_exposed_to_little(unit):
    status, report = found(SYSTEMD, "security", "--offline=yes", "--threshold=20", str(unit))
    assert status == 0, report  # 2.0 of 10
