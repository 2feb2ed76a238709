"""Folders with the tokenizer files of a model, from random settings in random files, and texts for them."""

import json
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = dict.fromkeys(("bert", "electra", "megatron-bert"), ("wordpiece",)) | {"roberta": ("bpe",)}
FAMILIES |= {"xlm-roberta": ("unigram",), "camembert": ("unigram",), "modernbert": ("bpe", "wordpiece")}
CLASSES = {
    "wordpiece": "BertTokenizer ElectraTokenizer DistilBertTokenizerFast DPRReaderTokenizer",
    "bpe": "RobertaTokenizer RobertaTokenizerFast GPT2Tokenizer BartTokenizerFast HerbertTokenizerFast",
    "unigram": "XLMRobertaTokenizer XLMRobertaTokenizerFast AlbertTokenizer CamembertTokenizer",
}
ANY_CLASSES = "PreTrainedTokenizerFast TokenizersBackend PreTrainedTokenizer MyOwnTokenizer"
BERT_NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
_WORDS = "the The good bad paris Paris muller müller drug Drug schön s was"
_ADDED = "[DRUG] [GENE] drug Paris <extra> 中国 ##x münchen |||a||| [SEP2] pa"
WORDS = _WORDS.split()
LETTERS = "abcdeghilmnoprstuwDMTPüöé中国的,.'-[]<>/|"
ADDED = [*_ADDED.split(), "New York"]
SPACES = (" ", "  ", "\n", "\t", "\u00a0", "\u3000", "")
ODD = ("😀", "\u200d", "\x07", "\ufeff", "ﬁ", "Ａ", "é", "한", "क", "İ", "Σ", "0", "42")
SETTINGS: dict[str, tuple[float, list[Any]]] = {
    "do_lower_case": (0.5, [True, False]),
    "strip_accents": (0.3, [True, False, None]),
    "tokenize_chinese_chars": (0.3, [True, False]),
    "add_prefix_space": (0.3, [True, False]),
    "keep_accents": (0.3, [True, False, None]),
    "trim_offsets": (0.3, [True, False]),
    "model_max_length": (0.3, [512, 1e30]),
    "clean_up_tokenization_spaces": (0.3, [True, False]),
    "split_special_tokens": (0.1, [True, False]),
    "add_bos_token": (0.1, [True, False]),
    "add_eos_token": (0.1, [True, False]),
    "image_token": (0.1, ["<image>", "[DRUG]"]),
    "model_input_names": (0.3, [["input_ids", "attention_mask"]]),
    "extra_special_tokens": (0.05, [{"gene_token": "[GENE]"}]),
}
"""Of tokenizer_config.json: how often a key is there, and its values."""


def random_text(rng: Random, names: list[str]) -> str:
    """A text of words, letters, tokens and characters of many kinds."""
    parts = []
    for _ in range(rng.randint(0, 9)):
        part = rng.choice(rng.choices([WORDS, LETTERS, ADDED, names, ODD], (5, 4, 4, 2, 1))[0])
        parts += [rng.choice((part, part, part.lower(), part.upper())), rng.choice(SPACES)]
    return "".join(parts)


def random_folder(rng: Random, folder: Path) -> list[str]:
    """Write a folder; returns the names of its special tokens."""

    def dump(name: str, values: object) -> None:
        (folder / name).write_text(json.dumps(values, ensure_ascii=rng.random() < 0.5), "utf-8")

    folder.mkdir(exist_ok=True)
    family = rng.choice(list(FAMILIES))
    model = rng.choice(list(CLASSES) if rng.random() < 0.1 else FAMILIES[family])
    of_bert = (model == "wordpiece") != (rng.random() < 0.15)
    names = dict(BERT_NAMES if of_bert else ROBERTA_NAMES)
    if rng.random() < 0.15:
        role = rng.choice(list(names))
        names[role] = rng.choice(("<other>", "OTHER", f"[{role}]", "|o|"))
    tokens = rng.sample(list(names.values()), len(names))
    if rng.random() < 0.1:
        tokens.remove(names["mask"])
    tokens += [token for token in ADDED if rng.random() < 0.1]
    pieces, merges = _vocabulary(model, tokens, [p for p in (*WORDS, *LETTERS) if rng.random() < 0.8])
    has_json = model == "unigram" or family == "modernbert" or rng.random() < 0.5
    if (not has_json and model == "wordpiece") or rng.random() < 0.2:
        ending = rng.choice(("\n", "\n", "\n", "\r\n"))
        (folder / "vocab.txt").write_text(ending.join(pieces) + rng.choice((ending, "")), "utf-8", newline="")
    if model == "bpe" and (not has_json or rng.random() < 0.2):
        dump("vocab.json", pieces)
        lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
        (folder / "merges.txt").write_text("\n".join(lines), "utf-8")
    if has_json:
        (folder / "tokenizer.json").write_text(
            _tokenizer(rng, model, pieces, merges, names).to_str(), "utf-8"
        )
    classes = [*CLASSES[model].split() * 2, *ANY_CLASSES.split()]
    config, settings = {"model_type": family}, _settings(rng, names)
    for values, chance in ((config, 0.15), (settings, 0.8)):
        if rng.random() < chance:
            values["tokenizer_class"] = rng.choice(classes)
    if rng.random() < 0.85:
        dump("tokenizer_config.json", settings)
    if rng.random() < 0.4:
        special = _roles(rng, names, 0.8)
        if rng.random() < 0.4:
            special["additional_special_tokens"] = rng.sample(ADDED, rng.randint(0, 3))
        dump("special_tokens_map.json", special)
    if rng.random() < 0.3:
        added = rng.sample(ADDED, rng.randint(1, 3))
        dump("added_tokens.json", {token: len(pieces) + i for i, token in enumerate(added)})
    if rng.random() < 0.95:
        dump("config.json", config)
    return list(names.values())


def _vocabulary(model: str, tokens: list[str], some: list[str]) -> tuple[dict[str, int], list[Any]]:
    """The pieces with their ids, and the merges of a BPE."""
    merges: list[tuple[str, str]] = []
    if model == "unigram":
        known = ["<s>", "<pad>", "</s>", "<unk>", *tokens, "▁", *some, *("▁" + piece for piece in some)]
    elif model == "wordpiece":
        known = [*tokens, *some, *("##" + piece for piece in some)]
    else:
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        letters = {c for word in (*LETTERS, *WORDS, "Ġ") for c in level.pre_tokenize_str(word)[0][0]}
        known = [*tokens, *sorted(letters | {"Ġ"})]
        for word in some:
            left, *rest = ["Ġ"] * (len(word) % 2) + [*level.pre_tokenize_str(word)[0][0]]
            for symbol in rest:
                merges.append((left, symbol))
                left += symbol
                known.append(left)
    return {piece: index for index, piece in enumerate(dict.fromkeys(known))}, list(dict.fromkeys(merges))


def _token(rng: Random, name: str, **more: Any) -> dict[str, Any]:
    flags = {"lstrip": 0.3, "normalized": 0.4, "rstrip": 0.2, "single_word": 0.2}
    return {"content": name, **{flag: rng.random() < chance for flag, chance in flags.items()}, **more}


def _roles(rng: Random, names: dict[str, str], chance: float, **more: Any) -> dict[str, Any]:
    """Some of the roles, as a name or as a token with its flags."""
    chosen = {f"{role}_token": name for role, name in names.items() if rng.random() < chance}
    return {key: name if rng.random() < 0.7 else _token(rng, name, **more) for key, name in chosen.items()}


def _settings(rng: Random, names: dict[str, str]) -> dict[str, Any]:
    settings = {
        key: rng.choice(values) for key, (chance, values) in SETTINGS.items() if rng.random() < chance
    }
    if names not in (BERT_NAMES, ROBERTA_NAMES) or rng.random() < 0.5:
        settings |= _roles(rng, names, 0.9, __type="AddedToken")
        if rng.random() < 0.3:
            settings["bos_token"], settings["eos_token"] = names["cls"], names["sep"]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if rng.random() < 0.25:
            chosen = rng.sample(ADDED, rng.randint(0, 3))
            typed = {"__type": "AddedToken", "special": rng.choice((True, False, None))}
            settings[key] = [name if rng.random() < 0.7 else _token(rng, name, **typed) for name in chosen]
    if rng.random() < 0.35:
        base, chosen = rng.choice((0, 40, 100)), rng.sample([*ADDED, *names.values()], rng.randint(0, 5))
        settings["added_tokens_decoder"] = {
            str(base + 7 * index): _token(rng, name, special=rng.random() < 0.5)
            for index, name in enumerate(chosen)
        }
    return settings


def _tokenizer(
    rng: Random, model: str, pieces: dict[str, int], merges: list[Any], names: dict[str, str]
) -> Tokenizer:
    lower, spaces = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    if model == "wordpiece":
        made = Tokenizer(models.WordPiece(pieces, unk_token=names["unk"]))
        accents, flags = rng.choice((True, False, None)), (rng.random() < 0.7, rng.random() < 0.5)
        bert = normalizers.BertNormalizer(True, flags[0], accents, flags[1])
        normal = (bert, normalizers.Sequence([normalizers.NFKC(), lower]), normalizers.NFC())
        splits = (pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace())
        made.decoder = decoders.WordPiece()
    elif model == "bpe":
        made = Tokenizer(models.BPE(pieces, merges, ignore_merges=rng.random() < 0.2))
        normal = (None, normalizers.NFC(), lower)
        flags = (rng.random() < 0.4, rng.random() < 0.8)
        splits = (pre_tokenizers.ByteLevel(add_prefix_space=flags[0], use_regex=flags[1]),)
        made.decoder = decoders.ByteLevel()
    else:
        scores = [(piece, -index / 10 if index > 9 else 0.0) for piece, index in pieces.items()]
        made = Tokenizer(models.Unigram(scores, unk_id=3))
        normal = (None, normalizers.NFKC(), normalizers.Sequence([normalizers.Strip(), lower]))
        meta = pre_tokenizers.Metaspace(prepend_scheme=rng.choice(("always", "first", "never")))
        splits = (meta, pre_tokenizers.Sequence([spaces, meta]))
    made.normalizer, made.pre_tokenizer = rng.choice(normal), rng.choice(splits)
    made.add_special_tokens([name for name in names.values() if name in pieces and rng.random() < 0.95])
    for name in rng.sample([*ADDED, *names.values()], rng.randint(0, 4)):
        made.add_tokens([AddedToken(**_token(rng, name, special=rng.random() < 0.5))])
    cls, sep = ((names[role], made.token_to_id(names[role])) for role in ("cls", "sep"))
    if rng.random() < 0.75 and None not in (cls[1], sep[1]):
        texts = {"single": f"{cls[0]} $A {sep[0]}", "pair": f"{cls[0]} $A {sep[0]} $B:1 {sep[0]}:1"}
        template = processors.TemplateProcessing(**texts, special_tokens=list({cls, sep}))
        of_pairs = (processors.RobertaProcessing, processors.BertProcessing)
        made.post_processor = rng.choice((template, *(make(sep, cls) for make in of_pairs)))
    if rng.random() < 0.15:
        pad_id = made.token_to_id(names["pad"]) or 0
        made.enable_padding(pad_token=names["pad"], pad_id=pad_id, length=rng.choice((None, 16)))
    if rng.random() < 0.15:
        made.enable_truncation(rng.choice((4, 8)))
    return made
