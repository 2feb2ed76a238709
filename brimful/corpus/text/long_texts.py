"""Cut a text that is too long: keep its beginning, or its end where `truncation_side` is left.

Only a part of a very long text is tokenized, since tokenizing takes about 140 bytes of memory a character.
"""

from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import truncation_side

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WHOLE_TEXT_CHARACTERS = 1 << 15
"""Texts up to this length are tokenized whole."""
MAX_TEXT_CHARACTERS = 16 << 20
"""The most characters of a text that can be tokenized at once."""


def cut_text(tokenizer: "Tokenizer", text: str, tokens: int, name: str) -> str:
    """Return a text, or a part of it that begins (or ends) with the same `tokens` tokens as the whole text.

    Args:
        tokenizer: a tokenizer without truncation.
        tokens: the number of tokens that are used.
        name: what the message calls the text.

    Raises:
        BrimfulError: `MAX_TEXT_CHARACTERS` characters are not enough.
    """
    if len(text) <= WHOLE_TEXT_CHARACTERS:
        return text
    keeps_end = truncation_side(tokenizer) == "left"
    size = max(WHOLE_TEXT_CHARACTERS // 16, 16 * tokens)
    while size < len(text) and size <= MAX_TEXT_CHARACTERS:
        part = text[-size:] if keeps_end else text[:size]
        words = tokenizer.encode(part, add_special_tokens=False).word_ids
        if keeps_end:
            words.reverse()
        # The part may cut the word at its edge, whose tokens may then differ from those in the whole text.
        if len(words) > tokens + 1 and words[tokens] != words[-1]:
            return part
        size *= 4
    return require_tokenizable(text, name)


def require_tokenizable(text: str, name: str) -> str:
    """Return the text.

    Raises:
        BrimfulError: the text has more than `MAX_TEXT_CHARACTERS` characters.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise BrimfulError(
            f"{name} has {len(text):,} characters, more than the {MAX_TEXT_CHARACTERS:,} that can be"
            " tokenized at once; divide it into several texts"
        )
    return text
