"""Find the characters that share a script with a text: Unicode's script property, as `tokenizers` has it."""

import unicodedata
from collections.abc import Iterable

# Punctuation, digits and symbols (Common), and the accents that follow letters (Inherited).
_OF_EVERY_SCRIPT = ("0", "\u0301")
_CATEGORIES_WITHOUT_SCRIPT = ("Cn", "Co", "Cs")


def select_same_scripts(characters: Iterable[str], text: Iterable[str]) -> set[str]:
    """Return the `characters` whose script occurs in `text`.

    Punctuation, digits, symbols and accents belong to every script, kana to the script of Han. Private-use
    and unassigned characters have no script.
    """
    candidates = _drop_without_script(characters)
    present = _drop_without_script(text) | set(_OF_EVERY_SCRIPT)
    runs = _split_by_script(candidates | present)
    scripts = [run[0] for run in runs if not present.isdisjoint(run)]
    selected: set[str] = set()
    for run in runs:
        # Two characters of one script stay one run when they are put together.
        if any(len(_split(character + run[0])) == 1 for character in scripts):
            selected.update(run)
    return candidates & selected


def _drop_without_script(characters: Iterable[str]) -> set[str]:
    return {c for c in characters if c != " " and unicodedata.category(c) not in _CATEGORIES_WITHOUT_SCRIPT}


def _split_by_script(characters: set[str]) -> list[str]:
    """Sort the characters into about a hundred runs of one script each: Unicode's blocks hold one script."""
    # `tokenizers` adds a character that is too new for it to the run before it, so such a one must not lead.
    return _split("".join([_OF_EVERY_SCRIPT[0], *sorted(characters)]))


def _split(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    return [run for run, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)]
