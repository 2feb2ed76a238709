"""The beginning of a very long text: tokenizing takes about 140 bytes of memory for each character."""

from typing import TYPE_CHECKING

from brimful.errors import BrimfulError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LONG = 1 << 15
"""Characters; shorter texts are tokenized whole."""
MOST = 16 << 20
"""Characters that are tokenized of a text."""


def beginning(tokenizer: "Tokenizer", text: str, tokens: int, name: str) -> str:
    """A text, or so much of it that its first `tokens` tokens are those of the whole and more follow.

    Args:
        tokenizer: without truncation.
        name: what the message calls the text.

    Raises:
        BrimfulError: `MOST` characters are not enough.
    """
    if len(text) <= LONG:
        return text
    size = max(LONG // 16, 16 * tokens)
    while size < len(text):
        if size > MOST:
            break
        words = tokenizer.encode(text[:size], add_special_tokens=False).word_ids
        if len(words) > tokens + 1 and words[tokens] != words[-1]:  # the last word may be cut
            return text[:size]
        size *= 4
    return in_full(text, name)


def in_full(text: str, name: str) -> str:
    """The text.

    Raises:
        BrimfulError: it has more than `MOST` characters.
    """
    if len(text) > MOST:
        raise BrimfulError(
            f"{name} has {len(text):,} characters, more than the {MOST:,} that can be tokenized at once;"
            " divide it into several texts"
        )
    return text
