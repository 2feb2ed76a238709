"""Every recipe is a valid configuration of the verb that its name starts with."""

from pathlib import Path

import pytest

from brimful.cli import load_verb
from brimful.config import build, read_yaml

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipe_is_a_valid_configuration(path: Path) -> None:
    verb = load_verb(path.name.split("-")[0])
    config = build(verb.schema, read_yaml(path), missing="")
    assert f"brimful {path.name.split('-')[0]} --config recipes/{path.name}" in path.read_text()
    assert config != build(verb.schema, {}, missing="")
