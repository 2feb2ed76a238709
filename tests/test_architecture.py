"""The house: imports follow the layers, closures stay small, light parts stay light, and the public API is
the documented one."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import brimful
from brimful.cli.main import SCHEMAS, VERBS, load_verb

PACKAGE = Path(brimful.__file__).parent
API = PACKAGE.parent / "docs" / "api.md"

# Lowest first. A module imports from lower layers, or from its own package.
ORDER = """
base / version / corpus packing / data precision / model optim / kernels / hf / start / runs / train
objectives / tables / tasks / augmentation / reports / exporting / serving / stages / commands / cli
"""
LAYERS = [layer.split() for layer in re.split("[/\n]", ORDER.strip())]
LAYER = {part: height for height, parts in enumerate(LAYERS) for part in parts}
# The names at the top and `python -m brimful` reach anything.
EXEMPT = ["brimful", "brimful.__main__"]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


# What a module may load, and so what one must read to change it: (files, lines) of its closure. Limits only
# fall.
CLOSURES = {
    "brimful.train.config": (5, 1_035),
    "brimful.train.trainer": (51, 7_338),
    "brimful.tasks.regression": (23, 3_205),
    "brimful.commands.predict": (91, 14_904),
    "brimful.commands.serve": (99, 16_627),
    "brimful.commands.pretrain": (107, 16_637),
    "brimful.commands.finetune": (142, 23_477),
    "brimful.commands.distil": (146, 23_671),
    "brimful.commands.evaluate": (153, 25_227),
    "brimful.commands.export": (134, 21_782),
    "brimful.commands.demo": (12, 1_807),
}
# A reader can't follow a module that is loaded by a name: one file does that, with a table of literal names.
LOADER = "brimful.cli.main"
LONGEST_FILE = 600


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def imports_of(module: str) -> frozenset[str]:
    """The modules of Brimful that a module names: in imports, wherever they stand and for type checkers
    too, and in strings such as "brimful.tasks.regression"."""
    named = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import"
            base = node.module or ""
            named |= {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "brimful." in node.value:
            named.add(node.value.partition(":")[0])
    return frozenset(name for name in named if name in MODULES)


def closure_of(module: str) -> set[str]:
    """The module, what it imports, what that imports ... The names at the top lead to everything, and stand
    for nothing."""
    closure, left = set(), [module]
    while left:
        module = left.pop()
        if module not in closure and module not in EXEMPT:
            closure.add(module)
            left += imports_of(module)
    return {module for module in closure if MODULES[module].name != "__init__.py"}


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def climbs(module: str, imported: str) -> bool:
    """Whether an import goes up, or through the top: `from brimful import X` imports everything."""
    own, other = part_of(module), part_of(imported)
    lowest = LAYER[own] == 0 == LAYER.get(other, 1)
    return not other or not (other == own or lowest or LAYER[other] < LAYER[own])


def test_imports_follow_the_layers() -> None:
    """An import goes to the module itself, of a lower layer."""
    layered = [module for module in MODULES if module not in EXEMPT]
    assert {part_of(module) for module in layered} <= set(LAYER)
    imports = [(module, imported) for module in layered for imported in imports_of(module)]
    assert [pair for pair in imports if climbs(*pair)] == []


def test_only_the_package_itself_depends_on_kernels() -> None:
    """It says which module registers the fast forms; all others would run without them."""
    for module in MODULES:
        imported_kernels = {name for name in imports_of(module) if part_of(name) == "kernels"}
        if module == "brimful":
            assert imported_kernels == {"brimful.kernels.forms"}
        else:
            assert part_of(module) == "kernels" or not imported_kernels, f"{module}: {imported_kernels}"


def test_modules_import_each_other_in_no_circle() -> None:
    modules = {module for module in MODULES if module not in EXEMPT}
    graph = {module: imports_of(module) & modules for module in modules}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", CLOSURES)
def test_what_one_must_read_is_limited(module: str) -> None:
    closure = closure_of(module)
    lines = sum(count_lines(MODULES[each]) for each in closure)
    most, most_lines = CLOSURES[module]
    print("\n".join(sorted(closure)))
    assert len(closure) <= most
    assert lines <= most_lines


def test_one_file_imports_by_name() -> None:
    calls = [(m, n) for m in MODULES for n in ast.walk(tree_of(m)) if isinstance(n, ast.Call)]
    names = ("import_module", "__import__")
    assert {module for module, call in calls if ast.unparse(call.func).endswith(names)} == {LOADER}


def test_no_file_is_long() -> None:
    lengths = {str(path): count_lines(path) for path in MODULES.values()}
    assert max(lengths.values()) <= LONGEST_FILE, {path: n for path, n in lengths.items() if n > LONGEST_FILE}


LIGHT = {
    "the package": ["brimful"],
    "corpus, packing": [module for module in MODULES if part_of(module) in ("corpus", "packing")],
    "configurations": [place.partition(":")[0] for place in SCHEMAS.values()],
}
HEAVY = {
    "the package": ["torch", "numpy", "yaml"],
    "corpus, packing": ["torch"],
    "configurations": ["torch", "numba", "scipy", "pyarrow", "sklearn"],
}


@pytest.mark.parametrize("part", LIGHT)
def test_light_modules_load_nothing_heavy(part: str) -> None:
    """A mistake in an option costs what its configuration loads."""
    assert LIGHT[part]
    code = f"import {', '.join(LIGHT[part])}, sys\nprint(set({HEAVY[part]}) & set(sys.modules))"
    line = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(line, check=True, capture_output=True, text=True, timeout=300).stdout == "set()\n"


def test_each_class_has_a_name_of_its_own() -> None:
    named: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in named.items() if len(modules) > 1} == {}


def test_the_public_api_is_the_documented_one() -> None:
    documented = re.findall(r"^### `brimful\.(\w+)", API.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == brimful.__all__
    assert set(dir(brimful)) == {*documented, "__version__"}
    for name in documented:
        assert callable(getattr(brimful, name))


def test_verbs_of_the_command_line_are_those_of_the_package() -> None:
    """`brimful.prepare` is the verb, whatever modules were imported before: none has such a name."""
    assert not {part_of(module) for module in MODULES} & set(brimful.__all__)
    for verb in VERBS:
        assert load_verb(verb) is getattr(brimful, verb.replace("-", "_"))


def test_nothing_that_is_loaded_is_unpickled() -> None:
    """Only processes of one run talk in pickles; a disk holds safetensors, JSON, YAML and bare arrays.
    What others have pickled is read by torch's restricted reader, which runs no code."""
    among_processes = {"brimful.corpus.engines.local_pool"}
    picklers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            named: set[str] = set()
            if isinstance(node, ast.Import):
                named = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                named = {(node.module or "").partition(".")[0]}
            assert module in among_processes or not named & picklers, f"{module}, line {node.lineno}"
            if not isinstance(node, ast.Call):
                continue
            call = ast.unparse(node.func)
            unsafe = call in ("torch.jit.load", "yaml.unsafe_load", "yaml.full_load")
            unsafe |= call == "torch.load" and "weights_only=True" not in ast.unparse(node)
            unsafe |= "allow_pickle=False" not in ast.unparse(node) and call in ("np.load", "numpy.load")
            assert not unsafe, f"{module}, line {node.lineno}: {call}"
