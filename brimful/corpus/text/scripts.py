"""Which characters share a script with a text: Unicode's script property, as `tokenizers` has it."""

import unicodedata
from collections.abc import Iterable

# Punctuation, digits and symbols (Common), and the accents that follow letters (Inherited).
_OF_EVERY_SCRIPT = ("0", "\u0301")
_WITHOUT_SCRIPT = ("Cn", "Co", "Cs")


def select_same_scripts(characters: Iterable[str], text: Iterable[str]) -> set[str]:
    """Those of `characters` whose script occurs in `text`.

    Punctuation, digits, symbols and accents belong to every script, kana to the script of Han. Private-use
    and unassigned characters have none.
    """
    wanted, present = _with_script(characters), _with_script(text) | set(_OF_EVERY_SCRIPT)
    runs = _runs(wanted | present)
    scripts = [run[0] for run in runs if not present.isdisjoint(run)]
    stay = [run for run in runs if any(_same(first, run[0]) for first in scripts)]
    return wanted.intersection("".join(stay))


def _with_script(characters: Iterable[str]) -> set[str]:
    return {c for c in characters if c != " " and unicodedata.category(c) not in _WITHOUT_SCRIPT}


def _runs(characters: set[str]) -> list[str]:
    """The characters, sorted, in runs of one script. There are about a hundred: blocks hold one script."""
    from tokenizers import pre_tokenizers

    # A character too new for `tokenizers` continues any run; none can be first.
    ordered = "".join([_OF_EVERY_SCRIPT[0], *sorted(characters)])
    return [run for run, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(ordered)]


def _same(one: str, other: str) -> bool:
    from tokenizers import pre_tokenizers

    return len(pre_tokenizers.UnicodeScripts().pre_tokenize_str(one + other)) == 1
