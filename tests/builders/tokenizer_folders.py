"""Folders with the tokenizer files of a model, from random settings in random files, and texts for them."""

import json
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = ("bert", "electra", "megatron-bert", "roberta", "xlm-roberta", "camembert", "modernbert")
BERT_NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
WORDS = ["the", "The", "good", "bad", "paris", "Paris", "muller", "müller", "drug", "Drug", "schön", "s"]
LETTERS = "abcdeghilmnoprstuwDMTPüöé中国的,.'-[]<>/|"
ADDED = ["[DRUG]", "[GENE]", "drug", "Paris", "<extra>", "中国", "##x", "münchen", "New York", "|||a|||"]
ADDED += ["[SEP2]", "pa"]
SPACES = (" ", "  ", "\n", "\t", "\u00a0", "\u3000", "")
ODD = ("😀", "\u200d", "\x07", "\ufeff", "ﬁ", "Ａ", "é", "한", "क", "İ", "Σ", "0", "42")
MODELS = {  # of the families that have one kind alone
    **dict.fromkeys(("bert", "electra", "megatron-bert"), "wordpiece"),
    **dict.fromkeys(("xlm-roberta", "camembert"), "unigram"),
    "roberta": "bpe",
}
CLASSES = {
    "wordpiece": "Bert BertFast Electra ElectraFast DistilBertFast DPRReader",
    "bpe": "Roberta RobertaFast GPT2 BartFast HerbertFast",
    "unigram": "XLMRoberta XLMRobertaFast Albert Camembert CamembertFast",
}
"""Classes that go with each kind, without `Tokenizer` in them."""
ANY_CLASS = ["PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer", "MyOwnTokenizer"]
SETTINGS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "do_lower_case": (0.5, (True, False)),
    "strip_accents": (0.3, (True, False, None)),
    "tokenize_chinese_chars": (0.3, (True, False)),
    "add_prefix_space": (0.3, (True, False)),
    "keep_accents": (0.3, (True, False, None)),
    "trim_offsets": (0.3, (True, False)),
    "model_max_length": (0.3, (512, 1e30)),
    "clean_up_tokenization_spaces": (0.3, (True, False)),
    "split_special_tokens": (0.1, (True, False)),
    "add_bos_token": (0.1, (True, False)),
    "add_eos_token": (0.1, (True, False)),
    "image_token": (0.1, ("<image>", "[DRUG]")),
    "model_input_names": (0.3, (["input_ids", "attention_mask"],)),
}
"""How often each setting is there, and its values."""


def random_text(rng: Random, names: list[str]) -> str:
    """A text of words, letters, tokens and characters of many kinds."""
    parts = []
    for _ in range(rng.randint(0, 9)):
        (kind,) = rng.choices([WORDS, LETTERS, ADDED, names, ODD], (5, 4, 4, 2, 1))
        part = rng.choice(kind)
        parts += [rng.choice((part, part, part.lower(), part.upper())), rng.choice(SPACES)]
    return "".join(parts)


def random_folder(rng: Random, folder: Path) -> list[str]:
    """Write a folder; returns the names of its special tokens."""
    family = rng.choice(FAMILIES)
    model = MODELS.get(family) or rng.choice(("bpe", "wordpiece"))
    if rng.random() < 0.1:
        model = rng.choice(("wordpiece", "bpe", "unigram"))
    names = dict(BERT_NAMES if model == "wordpiece" else ROBERTA_NAMES)
    if rng.random() < 0.15:
        names = dict(BERT_NAMES if model != "wordpiece" else ROBERTA_NAMES)
    if rng.random() < 0.15:
        role = rng.choice(list(names))
        names[role] = rng.choice(("<other>", "OTHER", f"[{role}]", "|o|"))
    tokens = [*names.values()]
    rng.shuffle(tokens)
    if rng.random() < 0.1:
        tokens.remove(names["mask"])
    some = [piece for piece in (*WORDS, *LETTERS) if rng.random() < 0.8]
    tokens += [token for token in ADDED if rng.random() < 0.1]
    vocabulary = _vocabulary(model, tokens, some)
    folder.mkdir(exist_ok=True)
    config = {"model_type": family}
    settings = _settings(rng, model, names)
    has_json = model == "unigram" or family == "modernbert" or rng.random() < 0.5
    if (not has_json and model == "wordpiece") or rng.random() < 0.2:
        ending = rng.choice(("\n", "\n", "\n", "\r\n"))
        pieces = list(dict(vocabulary) if model == "unigram" else vocabulary["pieces"])
        (folder / "vocab.txt").write_text(ending.join(pieces) + rng.choice((ending, "")), "utf-8", newline="")
    if (not has_json and model == "bpe") or (model == "bpe" and rng.random() < 0.2):
        (folder / "vocab.json").write_text(json.dumps(vocabulary["pieces"]), "utf-8")
        merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in vocabulary["merges"]), ""])
        (folder / "merges.txt").write_text(merges, "utf-8")
    if has_json:
        _write_json(rng, folder / "tokenizer.json", model, vocabulary, names)
    if rng.random() < 0.15:
        config["tokenizer_class"] = _class(rng, model)
    if rng.random() < 0.85:
        if rng.random() < 0.8:
            settings["tokenizer_class"] = _class(rng, model)
        _dump(rng, folder / "tokenizer_config.json", settings)
    if rng.random() < 0.4:
        _dump(rng, folder / "special_tokens_map.json", _map(rng, names))
    if rng.random() < 0.3:
        size = len(vocabulary) if model == "unigram" else len(vocabulary["pieces"])
        chosen = rng.sample(ADDED, rng.randint(1, 3))
        _dump(rng, folder / "added_tokens.json", {token: size + i for i, token in enumerate(chosen)})
    if rng.random() < 0.95:
        (folder / "config.json").write_text(json.dumps(config))
    return list(names.values())


def _dump(rng: Random, path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=rng.random() < 0.5), "utf-8")


def _class(rng: Random, model: str) -> str:
    name = rng.choice([*CLASSES[model].split() * 2, *ANY_CLASS])
    return (
        name if name in ANY_CLASS else f"{name.removesuffix('Fast')}Tokenizer{'Fast' * name.endswith('Fast')}"
    )


def _vocabulary(model: str, tokens: list[str], some: list[str]) -> Any:
    if model == "unigram":
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
        pieces += [(token, 0.0) for token in tokens]
        scored = enumerate(["▁", *some, *("▁" + piece for piece in some)])
        pieces += [(piece, -1.0 - index / 10) for index, piece in scored]
        return list(dict(pieces).items())
    if model == "wordpiece":
        every = [*tokens, *some, *("##" + piece for piece in some)]
        return {"pieces": {piece: index for index, piece in enumerate(dict.fromkeys(every))}, "merges": []}
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted({*level.pre_tokenize_str("".join([LETTERS, *WORDS, "Ġ"]))[0][0], "Ġ"})
    merges = []
    known = [*tokens, *letters]
    for word in some:
        left = level.pre_tokenize_str(word)[0][0]
        symbols = ["Ġ", *left] if len(word) % 2 else [*left]
        while len(symbols) > 1:
            merges.append((symbols[0], symbols[1]))
            symbols[:2] = [symbols[0] + symbols[1]]
            known.append(symbols[0])
    pieces = {piece: index for index, piece in enumerate(dict.fromkeys(known))}
    return {"pieces": pieces, "merges": list(dict.fromkeys(merges))}


def _token(rng: Random, name: str, *, typed: bool, special: bool | None = None) -> Any:
    chances = {"lstrip": 0.3, "normalized": 0.4, "rstrip": 0.2, "single_word": 0.2}
    values = {"content": name, **{flag: rng.random() < chance for flag, chance in chances.items()}}
    if special is not None:
        values["special"] = special
    return {"__type": "AddedToken", **values} if typed else values


def _name_or_token(rng: Random, name: str, chance: float, *, typed: bool) -> Any:
    if rng.random() < chance:
        return name
    return _token(rng, name, typed=typed, special=rng.choice((True, False, None)) if typed else None)


def _settings(rng: Random, model: str, names: dict[str, str]) -> dict[str, Any]:
    chosen_settings = {key: values for key, (chance, values) in SETTINGS.items() if rng.random() < chance}
    settings: dict[str, Any] = {key: rng.choice(values) for key, values in chosen_settings.items()}
    if model == "unigram" and rng.random() < 0.1:
        settings["add_prefix_space"] = None
    if names != (BERT_NAMES if model == "wordpiece" else ROBERTA_NAMES) or rng.random() < 0.5:
        for role, name in names.items():
            if rng.random() < 0.9:
                settings[f"{role}_token"] = _name_or_token(rng, name, 0.7, typed=True)
        if rng.random() < 0.3:
            settings["bos_token"], settings["eos_token"] = names["cls"], names["sep"]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if rng.random() < 0.25:
            chosen = rng.sample(ADDED, rng.randint(0, 3))
            settings[key] = [_name_or_token(rng, name, 0.7, typed=True) for name in chosen]
    if rng.random() < 0.05:
        settings["extra_special_tokens"] = {"gene_token": "[GENE]"}
    if rng.random() < 0.35:
        chosen = rng.sample([*ADDED, *names.values()], rng.randint(0, 5))
        base = rng.choice((0, 40, 100))
        settings["added_tokens_decoder"] = {
            str(base + 7 * index): _token(rng, name, typed=False, special=rng.random() < 0.5)
            for index, name in enumerate(chosen)
        }
    return settings


def _map(rng: Random, names: dict[str, str]) -> dict[str, Any]:
    roles = [role for role in names if rng.random() < 0.8]
    found: dict[str, Any] = {
        f"{role}_token": _name_or_token(rng, names[role], 0.6, typed=False) for role in roles
    }
    if rng.random() < 0.4:
        found["additional_special_tokens"] = rng.sample(ADDED, rng.randint(0, 3))
    if rng.random() < 0.1:
        chosen = rng.sample(ADDED, 2)
        found["extra_special_tokens"] = [_name_or_token(rng, name, 0.7, typed=False) for name in chosen]
    return found


def _write_json(rng: Random, path: Path, model: str, vocabulary: Any, names: dict[str, str]) -> None:
    pieces = [piece for piece, _ in vocabulary] if model == "unigram" else list(vocabulary["pieces"])
    if model == "wordpiece":
        made = Tokenizer(models.WordPiece(vocabulary["pieces"], unk_token=names["unk"]))
        bert = normalizers.BertNormalizer(
            lowercase=rng.random() < 0.5,
            strip_accents=rng.choice((True, False, None)),
            handle_chinese_chars=rng.random() < 0.7,
        )
        folded = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        made.normalizer = rng.choice((bert, folded, normalizers.NFC()))
        made.pre_tokenizer = rng.choice((pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace()))
        made.decoder = decoders.WordPiece()
    elif model == "bpe":
        made = Tokenizer(
            models.BPE(vocabulary["pieces"], vocabulary["merges"], ignore_merges=rng.random() < 0.2)
        )
        made.normalizer = rng.choice((None, normalizers.NFC(), normalizers.Lowercase()))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=rng.random() < 0.4, use_regex=rng.random() < 0.8
        )
        made.decoder = decoders.ByteLevel()
    else:
        made = Tokenizer(models.Unigram(vocabulary, unk_id=3))
        stripped = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()])
        made.normalizer = rng.choice((None, normalizers.NFKC(), stripped))
        space = pre_tokenizers.Metaspace(prepend_scheme=rng.choice(("always", "first", "never")))
        split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
        made.pre_tokenizer = rng.choice((space, split))
    cls, sep = names["cls"], names["sep"]
    made.add_special_tokens([name for name in names.values() if name in pieces and rng.random() < 0.95])
    for name in rng.sample([*ADDED, *names.values()], rng.randint(0, 4)):
        made.add_tokens([AddedToken(**_token(rng, name, typed=False, special=rng.random() < 0.5))])
    known = [(name, made.token_to_id(name)) for name in dict.fromkeys((cls, sep))]
    if rng.random() < 0.75 and all(index is not None for _, index in known):
        pair = f"{cls} $A {sep} $B:1 {sep}:1"
        template = processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=pair, special_tokens=known)
        ends = (sep, known[-1][1]), (cls, known[0][1])
        around = processors.RobertaProcessing(*ends), processors.BertProcessing(*ends)
        made.post_processor = rng.choice((template, *around))
    if rng.random() < 0.15:
        pad = made.token_to_id(names["pad"]) or 0
        made.enable_padding(pad_token=names["pad"], pad_id=pad, length=rng.choice((None, 16)))
    if rng.random() < 0.15:
        made.enable_truncation(rng.choice((4, 8)))
    path.write_text(made.to_str(), "utf-8")
