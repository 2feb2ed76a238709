"""Tokenizers of letters with masked LMs of random weights, for augmentation."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from brimful import Encoder
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from builders.encoders import pair_template, small

_WORDS = """
cat dog fox bird horse river stone house garden window bright quiet loud quick slow green
yellow happy angry clever jump run walk sing write read open close build paint
"""
ENGLISH = _WORDS.split()
STARTS = ["un", "mar", "vel", "ti", "gra", "bor"]
HAN = list("这本书很好看我喜欢它的内容电影音乐快慢")


def wordpiece() -> Tokenizer:
    """Lower-case WordPiece: 30 whole words, word starts, continuations, Han characters and punctuation."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "and", *",.!()0123456789"]
    continued = ["happy", "ger", "ous", "ness", "nia", "es", "s", *HAN[:4], *"0123456789"]
    pieces += [*ENGLISH, *STARTS, *HAN, *(f"##{piece}" for piece in continued)]
    ids = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = pair_template()
    return tokenizer


def byte_level() -> Tokenizer:
    """Byte-level BPE whose whole words have pieces with the space before them and without it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet])}
    merges: list[tuple[str, str]] = []
    for word in (*ENGLISH, "the", "and"):
        left = word[0]
        for character in word[1:]:
            merges.append((left, character))
            left += character
            ids.setdefault(left, len(ids))
        merges.append(("\u0120", word))
        ids.setdefault("\u0120" + word, len(ids))
    tokenizer = Tokenizer(models.BPE(ids, list(dict.fromkeys(merges))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    return tokenizer


def masked_lm(model: str = "bert", **changes) -> tuple[Encoder, MaskedLMHead]:
    """A small encoder with a tokenizer that goes with it, and its head."""
    torch.manual_seed(7)
    tokenizer = byte_level() if model in ("roberta", "modern") else wordpiece()
    encoder = small(model, vocabulary_size=max(tokenizer.get_vocab().values()) + 1, **changes)
    encoder.tokenizer = tokenizer
    head = MaskedLMHead(encoder)
    with torch.no_grad():
        head.bias.normal_()
    return encoder.eval(), head.eval()


def saved(folder: Path, *, head: bool = True, **changes) -> Path:
    """The folder of such a model, or of its encoder alone."""
    encoder, its = masked_lm(**changes)
    save_model(folder, encoder, its if head else None)
    return folder
