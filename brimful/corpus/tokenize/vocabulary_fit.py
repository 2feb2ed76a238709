"""Warn if a tokenizer does not fit the text, from counts of tokens and unknown characters by script.

The limits lie between values that were measured on held-out text: for tokenizers of the language of the text,
and for tokenizers of another language (vocabularies of 2,000 to 30,000, trained on 3 million characters).
"""

from collections import Counter
from collections.abc import Mapping

from brimful.base.console import pluralise

CHARACTERS_NAMED = 8
MIN_SCRIPT_SHARE = 0.001
MAX_UNKNOWN_RATE = 0.01
MAX_UNKNOWN_RATE_IN_SCRIPT = 0.02
# Tokens per character, by script.
MAX_TOKEN_RATES = {"Latin": 0.45, "Han": 1.5, "kana": 1.5, "Hangul": 1.5, "other": 2.0}


def list_fit_warnings(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return warnings about a tokenizer; an empty list if it fits.

    Args:
        counts: by script, `characters` (without spaces), `tokens`, and characters in `unknown` tokens. A
            script of less than 0.1 % of the characters is not judged.
    """
    totals: Counter[str] = Counter()
    for script in counts.values():
        totals.update(script)
    warnings = []
    if totals["unknown"] > MAX_UNKNOWN_RATE * totals["characters"]:
        warnings.append(
            f"{totals['unknown'] / totals['characters']:.1%} of the text is in unknown tokens, which the"
            " model cannot see: train a tokenizer on it, take a larger or byte-level one, or --tokenizer"
            " characters for text without spaces, such as proteins"
        )
    for name, script in counts.items():
        if script["characters"] <= MIN_SCRIPT_SHARE * totals["characters"]:
            continue
        if script["unknown"] > MAX_UNKNOWN_RATE_IN_SCRIPT * script["characters"]:
            share = script["unknown"] / script["characters"]
            warnings.append(f"{share:.1%} of the {name} text is in unknown tokens: the vocabulary lacks it")
        rate = script["tokens"] / script["characters"]
        # Exactly one token a character is a tokenizer of characters, which somebody has chosen.
        if rate != 1 and rate > MAX_TOKEN_RATES.get(name, MAX_TOKEN_RATES["other"]):
            warnings.append(
                f"{rate:.2f} tokens per {name} character: the tokenizer spells {name} text out; "
                "take a larger vocabulary, or one trained on such text"
            )
    return warnings


def list_lacking_characters(counts: Counter[str]) -> list[str]:
    """Return the warning about characters of the text that the vocabulary lacks; an empty list if it has all.

    Args:
        counts: the occurrences of each such character.
    """
    if not counts:
        return []
    names = [f"{character} {count:,}" for character, count in counts.most_common(CHARACTERS_NAMED)]
    more = ""
    if len(counts) > CHARACTERS_NAMED:
        more = f" and {len(counts) - CHARACTERS_NAMED:,} more"
    return [
        f"the vocabulary lacks {pluralise(len(counts), 'character')} of the text"
        f" ({pluralise(counts.total(), 'occurrence')}); words that hold one become the unknown token"
        f" ({', '.join(names)}{more}): take a larger vocabulary (--tokenizer train:SIZE) or a byte-level one"
        " (--model bpe)"
    ]
