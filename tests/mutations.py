"""Do the tests notice a fault? Put random one-line faults into the package, one at a time, and run the tests.

    python tests/mutations.py --seed 1 --faults 20

A fault changes a comparison, an operator, a number or a truth value to its neighbour, in a folder where
exactness counts. The tests of the fault's own folder run first; with --whole, the default suite runs on the
faults that they miss. Everything happens in a clone of the last commit.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = ("model", "packing", "data", "train", "precision", "tasks")
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Mult Div, And Or"
NEIGHBOURS: dict[type[ast.AST], Any] = {ast.FloorDiv: ast.Mult}
for pair in PAIRS.split(", "):
    one, other = (getattr(ast, name) for name in pair.split())
    NEIGHBOURS |= {one: other, other: one}


class Fault(NamedTuple):
    """A change of one line."""

    path: Path
    line: int
    after: str


def change(node: ast.AST) -> bool:
    """Change a node to its neighbour, in place; return whether it has one."""
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [NEIGHBOURS[type(operator)]()]
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in NEIGHBOURS:
            node.op = NEIGHBOURS[type(operator)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            node.value = value + 1
        case _:
            return False
    return True


def code_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, but for annotations, decorators, formatted strings and imports for types."""
    if isinstance(tree, ast.JoinedStr) or (
        isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.dump(tree.test)
    ):
        return
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            # A fault in `strict=True` shows only where another check has failed before.
            if isinstance(child, ast.AST) and getattr(child, "arg", "") != "strict":
                yield from code_nodes(child)


def faults_of(path: Path) -> Iterator[Fault]:
    """Yield every fault of a module that stands on one line."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in code_nodes(ast.parse(source)):
        if not isinstance(node, ast.expr) or node.lineno != node.end_lineno or not change(node):
            continue
        line = lines[node.lineno - 1].encode()
        assert node.end_col_offset is not None
        after = line[: node.col_offset] + f"({ast.unparse(node)})".encode() + line[node.end_col_offset :]
        yield Fault(path, node.lineno, after.decode())


def draw_faults(copy: Path, number: int, seed: int) -> list[Fault]:
    """Draw faults, as many of each folder; a module's chance grows with its length."""
    draws = random.Random(seed)
    drawn = []
    for index in range(number):
        folder = copy / "brimful" / FOLDERS[index % len(FOLDERS)]
        every = [fault for path in sorted(folder.rglob("*.py")) for fault in faults_of(path)]
        drawn.append(draws.choice(every))
    return drawn


def tests_fail(copy: Path, *options: str) -> bool:
    """Run tests in the copy, until one fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options]
    run = subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True)
    return run.returncode != 0


def try_fault(fault: Fault, copy: Path, *, whole: bool) -> str:
    """Return which tests notice a fault: a folder, or "MISSED"."""
    source = fault.path.read_text(encoding="utf-8")
    lines = source.splitlines()
    lines[fault.line - 1] = fault.after
    fault.path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    caught, folder = "MISSED", f"tests/{fault.path.relative_to(copy).parts[1]}"
    if tests_fail(copy, "-n", "0", folder):
        caught = folder
    elif whole and tests_fail(copy, "-n", "2", "--dist", "worksteal"):
        caught = "tests"
    fault.path.write_text(source, encoding="utf-8")
    return caught


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--whole", action="store_true", help="run the default suite too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, "checkout")
        subprocess.run(["git", "clone", "--quiet", Path(__file__).parents[1], copy], check=True)
        for fault in draw_faults(copy, args.faults, args.seed):
            caught = try_fault(fault, copy, whole=args.whole)
            place = f"{fault.path.relative_to(copy)}:{fault.line}"
            print(f"{caught:16} {place}  {fault.after.strip()}", flush=True)


if __name__ == "__main__":
    main()
