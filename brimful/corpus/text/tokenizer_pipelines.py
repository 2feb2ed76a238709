"""Build the pipeline around a vocabulary: normaliser, pre-tokenizer, decoder and special tokens of each kind.

- `bert`: BERT's WordPiece pipeline.
- `byte_level`: GPT-2's bytes as letters, as RoBERTa and ModernBERT have them; every text can be spelled.

In `byte_level`, runs of Han characters are cut from their surroundings: one by one, as in BERT, or in
runs of at most 32, so that encoding time stays linear.
"""

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from brimful.corpus.text.folder_files import normalizer_steps
from brimful.corpus.text.folding import Folding, normalizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Han = Literal["characters", "pieces"]
"""How a trained tokenizer cuts Chinese: one token a character, or pieces of up to `LONGEST_PIECE`."""
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# In characters; a word of byte-level BPE is measured in bytes.
LONGEST_WORD = 100
LONGEST_RUN = 32
LONGEST_PIECE = 4
_LONG_RUN = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def bert(vocabulary: dict[str, int], normal: Any) -> "Tokenizer":
    """Return BERT's pipeline around a WordPiece vocabulary, without special tokens; `normal` normalises."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normal
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level(model: Any, folding: Folding | None, han: Han) -> "Tokenizer":
    """Return the pipeline of byte-level BPE, without special tokens; only `folding` changes the text."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    if folding is not None:
        tokenizer.normalizer = normalizer(folding, drop=False, han_apart=False)
    han_cut = cut_han(1 if han == "characters" else LONGEST_RUN)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [han_cut, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def cut_han(max_characters: int) -> Any:
    """Return a pre-tokenizer that cuts runs of at most `max_characters` Han characters from other text."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(rf"\p{{Han}}{{1,{max_characters}}}"), "isolated")


def drop_long_words() -> Any:
    """Return a pre-tokenizer for training that drops overlong words, which take time and memory."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(rf"\A(?m:.){{{LONGEST_WORD + 1},}}\z"), "removed")


def without_long_words(text: str, pre_tokenizer: Any) -> str:
    """Drop the overlong words of one text, in Python. Only overlong runs are pre-tokenized."""

    def drop_long(run: re.Match[str]) -> str:
        words = []
        for word, _ in pre_tokenizer.pre_tokenize_str(run[0]):
            if len(word) <= LONGEST_WORD:
                words.append(word)
        return "".join(words)

    return _LONG_RUN.sub(drop_long, text)


def with_special_tokens(tokenizer: "Tokenizer") -> "Tokenizer":
    """Mark BERT's special tokens, and put them around texts and pairs."""
    from tokenizers import processors

    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.add_special_tokens(sorted(SPECIAL_TOKENS, key=vocabulary.__getitem__))
    return tokenizer


def with_nfkc(tokenizer: "Tokenizer") -> "Tokenizer":
    """Return a copy that normalises by NFKC first; the tokenizer itself if it does so already.

    A SentencePiece character map (`Precompiled`) counts as NFKC: its default is NFKC and a little more.
    """
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.to_str())
    steps = normalizer_steps(state)
    if {"NFKC", "Precompiled"} & {step["type"] for step in steps}:
        return tokenizer
    state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, *steps]}
    return Tokenizer.from_str(json.dumps(state))
