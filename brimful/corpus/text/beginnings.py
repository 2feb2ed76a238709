"""What is read of a text that is too long: its beginning, or its end where `truncation_side` is left.

Of a very long text, no more is tokenized: it takes about 140 bytes of memory for each character.
"""

from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import truncation_side

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LONG = 1 << 15
"""Characters; shorter texts are tokenized whole."""
MOST = 16 << 20
"""Characters that are tokenized of a text."""


def beginning(tokenizer: "Tokenizer", text: str, tokens: int, name: str) -> str:
    """A text, or so much of the part that is read that `tokens` tokens are those of the whole, and there are
    more.

    Args:
        tokenizer: without truncation.
        name: what the message calls the text.

    Raises:
        BrimfulError: `MOST` characters are not enough.
    """
    if len(text) <= LONG:
        return text
    size, left = max(LONG // 16, 16 * tokens), truncation_side(tokenizer) == "left"
    while size < len(text):
        if size > MOST:
            break
        part = text[-size:] if left else text[:size]
        words = tokenizer.encode(part, add_special_tokens=False).word_ids[:: -1 if left else 1]
        if len(words) > tokens + 1 and words[tokens] != words[-1]:  # the word at the edge may be cut
            return part
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
