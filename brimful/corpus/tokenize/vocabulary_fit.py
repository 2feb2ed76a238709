"""Whether a tokenizer fits the text: warnings from counts of tokens and unknown tokens by script.

The limits lie between the values measured on held-out text for tokenizers of the same language and of another
language (vocabularies of 2,000 to 30,000, trained on 3 million characters).
"""

from collections import Counter
from collections.abc import Mapping

from brimful.base.console import pluralise

SHOWN = 8
LEAST_FRACTION = 0.001
MOST_UNKNOWN = 0.01
MOST_UNKNOWN_IN_SCRIPT = 0.02
# The most tokens per character.
LIMITS = {"Latin": 0.45, "Han": 1.5, "kana": 1.5, "Hangul": 1.5, "other": 2.0}


def quality(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Warnings about a tokenizer; an empty list if it fits.

    Args:
        counts: by script, `characters` (without spaces), `tokens` and `unknown` tokens. A script of less than
            0.1 % of the characters is not judged.
    """
    characters = sum(script["characters"] for script in counts.values())
    tokens = sum(script["tokens"] for script in counts.values())
    unknown = sum(script["unknown"] for script in counts.values())
    warnings = []
    if unknown > MOST_UNKNOWN * tokens:
        warnings.append(
            f"{unknown / tokens:.1%} of all tokens are unknown: the model cannot see that text; "
            "train a tokenizer on it, or take a larger or byte-level one"
        )
    for name, script in counts.items():
        if script["characters"] <= LEAST_FRACTION * characters:
            continue
        if script["unknown"] > MOST_UNKNOWN_IN_SCRIPT * script["tokens"]:
            share = script["unknown"] / script["tokens"]
            warnings.append(f"{share:.1%} of the {name} tokens are unknown: the vocabulary lacks that script")
        rate = script["tokens"] / script["characters"]
        if rate > LIMITS.get(name, LIMITS["other"]):
            warnings.append(
                f"{rate:.2f} tokens per {name} character: the tokenizer spells {name} text out; "
                "take a larger vocabulary, or one trained on such text"
            )
    return warnings


def lacking_characters(counts: Counter[str]) -> list[str]:
    """The warning about characters of the text that the vocabulary lacks; an empty list if it has all.

    Args:
        counts: the occurrences of each such character.
    """
    if not counts:
        return []
    shown = ", ".join(f"{character} {count:,}" for character, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN:,} more" if len(counts) > SHOWN else ""
    return [
        f"the vocabulary lacks {pluralise(len(counts), 'character')} of the text"
        f" ({pluralise(counts.total(), 'occurrence')}); words that hold one become the unknown token"
        f" ({shown}{more}): take a larger vocabulary (--tokenizer train:SIZE) or a byte-level one"
        " (--model bpe)"
    ]
