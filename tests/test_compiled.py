"""Compiled loops: kept machine code can never be older than what it was made of."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import brimful
from brimful.compiled import compiled

PACKAGE = Path(brimful.__file__).parent
NEVER_CHANGES = "brimful.data.draws"
"""Loops may keep what it defines: test_draws.py holds its values."""
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def calls_compiled(node: ast.AST) -> bool:
    """`@compiled`, `@compiled_briefly`, `compiled(f)`, and a module's own `_compiled(f)`, imported late."""
    return isinstance(node, ast.Name) and node.id.lstrip("_").removesuffix("_briefly") == "compiled"


def is_renamed(tree: ast.Module, name: str) -> bool:
    """`f.__qualname__ = ...`: the code is kept under a name that tells the sources it was made of."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return any(
        isinstance(target, ast.Attribute) and target.attr == "__qualname__" and names_in(target) == {name}
        for target in targets
    )


def compiled_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    given = {
        argument.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and calls_compiled(node.func)
        for argument in node.args
        if isinstance(argument, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (
            node.name in given or any(map(calls_compiled, node.decorator_list))
        ):
            yield node


def from_elsewhere(tree: ast.Module) -> set[str]:
    """The global names that come from other modules of ours, or are computed from such."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            if module == NEVER_CHANGES:
                continue
            ours = isinstance(node, ast.ImportFrom) and (node.level or module.split(".")[0] == "brimful")
            names |= {
                alias.asname or alias.name.split(".")[0]
                for alias in node.names
                if ours or alias.name.split(".")[0] == "brimful"
            }
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value and names_in(node.value) & names:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= set().union(*map(names_in, targets))
    return names


def frozen(source: str) -> set[tuple[str, str]]:
    """Compiled functions and what they use from other modules of ours, with types of parameters."""
    tree = ast.parse(source)
    names = from_elsewhere(tree)
    used = {
        function.name: set().union(*map(names_in, [*function.body, function.args]))
        for function in compiled_functions(tree)
        if not is_renamed(tree, function.name)
    }
    return {(function, name) for function in used for name in used[function] & names}


@pytest.mark.parametrize("module", [name for name, source in SOURCES.items() if "compiled" in source])
def test_compiled_loops_use_only_their_own_module(module: str) -> None:
    """numba keeps machine code until the file of the loop changes: it would not see another file change."""
    assert frozen(SOURCES[module]) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from brimful.a import ONE\n@compiled\ndef f(x):\n    return x + ONE", {("f", "ONE")}),
        (
            "from brimful.a import ONE\n_TWO = ONE + 1\n@compiled\ndef f(x):\n    return x + _TWO",
            {("f", "_TWO")},
        ),
        ("from brimful.a import g\ndef f(x):\n    return g(x)\ncompiled(f)", {("f", "g")}),
        ("from brimful import a\ndef f(x):\n    return x + a.ONE\n_compiled(f)", {("f", "a")}),
        ("from brimful.a import Pair\n@compiled\ndef f(x: Pair):\n    return x.first", {("f", "Pair")}),
        ("from brimful.a import g\ndef f(x):\n    return g(x)\nf.__qualname__ = 'f1'\ncompiled(f)", set()),
        ("from brimful.a import ONE\nTWO = 2\n@compiled\ndef f(x):\n    return x + TWO", set()),
        ("from brimful.a import ONE\ndef f(x):\n    return x + ONE", set()),
    ],
)
def test_the_check_sees_what_is_frozen(source: str, found: set[tuple[str, str]]) -> None:
    assert frozen(source) == found


def test_loops_compile_where_nothing_can_be_kept() -> None:
    scope: dict[str, Any] = {}
    exec("def double(x):\n    return x + x", scope)  # numba finds no folder for code without a file
    assert compiled(scope["double"])(21) == 42


PACK = """
import importlib, json, pkgutil, sys
if sys.argv[1] == "without numba":
    sys.modules["numba"] = None
import numpy as np
import brimful.packing
from brimful.compiled import HAVE_NUMBA

names = [module.name for module in pkgutil.iter_modules(brimful.packing.__path__)]
homes = [importlib.import_module(f"brimful.packing.{name}") for name in names]
found = {name: value for home in homes for name, value in vars(home).items() if callable(value)}

lengths = np.random.default_rng(int(sys.argv[2])).integers(1, 25, 150)
counts = np.bincount(lengths)
results = {"numba": HAVE_NUMBA}
for name in ("spfhp", "lpfhp", "nnlshp", "cutting_stock", "pack_stream"):
    if name in found:
        plan = found[name](lengths if name == "pack_stream" else counts, 24, 3)
        row_offsets, order = found["assign"](plan, lengths, np.uint64(7))
        costs = found["row_costs"](row_offsets, order, lengths)
        dealt, rest = found["deal"](costs, 2, 3, np.uint64(7))
        results[name] = [plan.patterns, plan.repeats.tolist(), order.tolist(), dealt.tolist(), rest.tolist()]
print(json.dumps(results))
"""


def test_packing_without_numba_gives_the_same(seed: int) -> None:
    with_numba, without = (
        json.loads(
            subprocess.run(
                [sys.executable, "-W", "error", "-c", PACK, how, str(seed)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for how in ("with numba", "without numba")
    )
    assert with_numba.pop("numba")
    assert not without.pop("numba")
    assert {"spfhp", "lpfhp"} <= with_numba.keys()
    assert with_numba == without
