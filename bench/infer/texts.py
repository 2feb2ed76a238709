"""Real texts for bench/infer: docstrings of Python's standard library, as they are and cut to one length."""

import ast
import random
import sysconfig
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

LONG = 256
"""Tokens of each of the long texts, special tokens included."""


@cache
def docstrings() -> list[str]:
    """Of all modules, classes and functions of the standard library, in the order of its files; each once."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found[text] = None
    return list(found)


def skewed(texts: list[str], count: int, seed: int = 0) -> list[str]:
    """A random sample of texts: of the docstrings, most are a line, some a manual."""
    return random.Random(seed).sample(texts, min(count, len(texts)))


def long(texts: list[str], count: int, tokenizer: Tokenizer, seed: int = 0) -> list[str]:
    """Texts of at least `LONG` tokens, which are all cut there: without padding for anyone."""
    everything = " ".join(random.Random(seed).sample(texts, len(texts)))
    tokenizer.no_truncation()  # which tokenizer.json may ask for
    encoding = tokenizer.encode(everything, add_special_tokens=False)
    step = LONG + 16  # a piece that is cut within a word may encode to fewer tokens
    places = [encoding.offsets[start][0] for start in range(0, step * (count + 1), step)]
    return [everything[a:b] for a, b in pairwise(places)]
