"""What is read of a text that is too long: its beginning, or its end where `truncation_side` is left.

Of a very long text, no more is tokenized: it takes about 140 bytes of memory for each character.
"""

from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import truncation_side

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WHOLE_TEXT_CHARACTERS = 1 << 15
"""Characters; shorter texts are tokenized whole."""
MAX_TEXT_CHARACTERS = 16 << 20
"""Characters that are tokenized of a text."""


def cut_text(tokenizer: "Tokenizer", text: str, tokens: int, name: str) -> str:
    """A text, or so much of the part that is read that `tokens` tokens are those of the whole, and there are
    more.

    Args:
        tokenizer: without truncation.
        name: what the message calls the text.

    Raises:
        BrimfulError: `MAX_TEXT_CHARACTERS` characters are not enough.
    """
    if len(text) <= WHOLE_TEXT_CHARACTERS:
        return text
    size, left = max(WHOLE_TEXT_CHARACTERS // 16, 16 * tokens), truncation_side(tokenizer) == "left"
    while size < len(text):
        if size > MAX_TEXT_CHARACTERS:
            break
        part = text[-size:] if left else text[:size]
        words = tokenizer.encode(part, add_special_tokens=False).word_ids[:: -1 if left else 1]
        if len(words) > tokens + 1 and words[tokens] != words[-1]:  # the word at the edge may be cut
            return part
        size *= 4
    return require_tokenizable(text, name)


def require_tokenizable(text: str, name: str) -> str:
    """The text.

    Raises:
        BrimfulError: it has more than `MAX_TEXT_CHARACTERS` characters.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise BrimfulError(
            f"{name} has {len(text):,} characters, more than the {MAX_TEXT_CHARACTERS:,} that can be"
            " tokenized at once; divide it into several texts"
        )
    return text
