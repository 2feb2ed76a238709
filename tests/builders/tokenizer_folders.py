"""Folders with the tokenizer files of a model, from random settings in random files, and texts for them."""

import json
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = ("bert", "electra", "megatron-bert", "roberta", "xlm-roberta", "camembert", "modernbert")
BERT_NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
WORDS = (
    "the",
    "The",
    "good",
    "bad",
    "paris",
    "Paris",
    "muller",
    "müller",
    "drug",
    "Drug",
    "schön",
    "s",
    "was",
)
LETTERS = "abcdeghilmnoprstuwDMTPüöé中国的,.'-[]<>/|"
ADDED = (
    "[DRUG]",
    "[GENE]",
    "drug",
    "Paris",
    "<extra>",
    "中国",
    "##x",
    "münchen",
    "New York",
    "|||a|||",
    "[SEP2]",
    "pa",
)
SPACES = (" ", "  ", "\n", "\t", "\u00a0", "\u3000", "")


def random_text(rng: Random, names: list[str]) -> str:
    """A text of words, letters, tokens and characters of many kinds."""
    kinds = [
        WORDS,
        LETTERS,
        ADDED,
        tuple(names),
        ("😀", "\u200d", "\x07", "\ufeff", "ﬁ", "Ａ", "é", "한", "क", "İ", "Σ", "0", "42"),
    ]
    parts = []
    for _ in range(rng.randint(0, 9)):
        kind = rng.choices(kinds, (5, 4, 4, 2, 1))[0]
        part = rng.choice(kind)
        parts += [rng.choice((part, part, part.lower(), part.upper())), rng.choice(SPACES)]
    return "".join(parts)


def random_folder(rng: Random, folder: Path) -> list[str]:
    """Write a folder; returns the names of its special tokens."""
    family = rng.choice(FAMILIES)
    model = {
        "bert": "wordpiece",
        "electra": "wordpiece",
        "megatron-bert": "wordpiece",
        "roberta": "bpe",
        "xlm-roberta": "unigram",
        "camembert": "unigram",
    }.get(family) or rng.choice(("bpe", "wordpiece"))
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
    in_vocabulary = [token for token in ADDED if rng.random() < 0.1]
    vocabulary = _vocabulary(model, tokens + in_vocabulary, some)
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
        config["tokenizer_class"] = rng.choice(_classes(model))
    if rng.random() < 0.85:
        if rng.random() < 0.8:
            settings["tokenizer_class"] = rng.choice(_classes(model))
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


def _classes(model: str) -> list[str]:
    own = {
        "wordpiece": [
            "BertTokenizer",
            "BertTokenizerFast",
            "ElectraTokenizer",
            "ElectraTokenizerFast",
            "DistilBertTokenizerFast",
            "DPRReaderTokenizer",
        ],
        "bpe": [
            "RobertaTokenizer",
            "RobertaTokenizerFast",
            "GPT2Tokenizer",
            "BartTokenizerFast",
            "HerbertTokenizerFast",
        ],
        "unigram": [
            "XLMRobertaTokenizer",
            "XLMRobertaTokenizerFast",
            "AlbertTokenizer",
            "CamembertTokenizer",
            "CamembertTokenizerFast",
        ],
    }[model]
    return [
        *own,
        *own,
        "PreTrainedTokenizerFast",
        "TokenizersBackend",
        "PreTrainedTokenizer",
        "MyOwnTokenizer",
    ]


def _vocabulary(model: str, tokens: list[str], some: list[str]) -> Any:
    if model == "unigram":
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
        pieces += [(token, 0.0) for token in tokens]
        pieces += [
            (piece, -1.0 - index / 10)
            for index, piece in enumerate(["▁", *some, *("▁" + piece for piece in some)])
        ]
        return list(dict(pieces).items())
    if model == "wordpiece":
        every = [*tokens, *some, *("##" + piece for piece in some)]
        return {"pieces": {piece: index for index, piece in enumerate(dict.fromkeys(every))}, "merges": []}
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted(
        {c for word in (*LETTERS, *WORDS, "Ġ") for c in level.pre_tokenize_str(word)[0][0]} | {"Ġ"}
    )
    merges = []
    known = [*tokens, *letters]
    for word in some:
        left = level.pre_tokenize_str(word)[0][0]
        symbols = ["Ġ", *left] if len(word) % 2 else [*left]
        while len(symbols) > 1:
            merges.append((symbols[0], symbols[1]))
            symbols[:2] = [symbols[0] + symbols[1]]
            known.append(symbols[0])
    return {
        "pieces": {piece: index for index, piece in enumerate(dict.fromkeys(known))},
        "merges": list(dict.fromkeys(merges)),
    }


def _token(rng: Random, name: str, *, typed: bool, special: bool | None = None) -> Any:
    values = {
        "content": name,
        "lstrip": rng.random() < 0.3,
        "normalized": rng.random() < 0.4,
        "rstrip": rng.random() < 0.2,
        "single_word": rng.random() < 0.2,
    }
    if special is not None:
        values["special"] = special
    return {"__type": "AddedToken", **values} if typed else values


def _settings(rng: Random, model: str, names: dict[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}

    def maybe(key: str, *values: Any, chance: float = 0.3) -> None:
        if rng.random() < chance:
            settings[key] = rng.choice(values)

    maybe("do_lower_case", True, False, chance=0.5)
    maybe("strip_accents", True, False, None)
    maybe("tokenize_chinese_chars", True, False)
    maybe("add_prefix_space", True, False, *([None] if model == "unigram" else []))
    maybe("keep_accents", True, False, None)
    maybe("trim_offsets", True, False)
    maybe("model_max_length", 512, 1e30)
    maybe("clean_up_tokenization_spaces", True, False)
    maybe("split_special_tokens", True, False, chance=0.1)
    maybe("add_bos_token", True, False, chance=0.1)
    maybe("add_eos_token", True, False, chance=0.1)
    maybe("image_token", "<image>", "[DRUG]", chance=0.1)
    maybe("model_input_names", ["input_ids", "attention_mask"])
    if names != (BERT_NAMES if model == "wordpiece" else ROBERTA_NAMES) or rng.random() < 0.5:
        for role, name in names.items():
            if rng.random() < 0.9:
                settings[f"{role}_token"] = name if rng.random() < 0.7 else _token(rng, name, typed=True)
        if rng.random() < 0.3:
            settings["bos_token"], settings["eos_token"] = names["cls"], names["sep"]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if rng.random() < 0.25:
            chosen = rng.sample(ADDED, rng.randint(0, 3))
            settings[key] = [
                name
                if rng.random() < 0.7
                else _token(rng, name, typed=True, special=rng.choice((True, False, None)))
                for name in chosen
            ]
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
    found: dict[str, Any] = {
        f"{role}_token": name if rng.random() < 0.6 else _token(rng, name, typed=False)
        for role, name in names.items()
        if rng.random() < 0.8
    }
    if rng.random() < 0.4:
        found["additional_special_tokens"] = rng.sample(ADDED, rng.randint(0, 3))
    if rng.random() < 0.1:
        found["extra_special_tokens"] = [
            name if rng.random() < 0.7 else _token(rng, name, typed=False) for name in rng.sample(ADDED, 2)
        ]
    return found


def _write_json(rng: Random, path: Path, model: str, vocabulary: Any, names: dict[str, str]) -> None:
    pieces = [piece for piece, _ in vocabulary] if model == "unigram" else list(vocabulary["pieces"])
    if model == "wordpiece":
        made = Tokenizer(models.WordPiece(vocabulary["pieces"], unk_token=names["unk"]))
        made.normalizer = rng.choice(
            (
                normalizers.BertNormalizer(
                    lowercase=rng.random() < 0.5,
                    strip_accents=rng.choice((True, False, None)),
                    handle_chinese_chars=rng.random() < 0.7,
                ),
                normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                normalizers.NFC(),
            )
        )
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
        made.normalizer = rng.choice(
            (None, normalizers.NFKC(), normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()]))
        )
        space = pre_tokenizers.Metaspace(prepend_scheme=rng.choice(("always", "first", "never")))
        made.pre_tokenizer = rng.choice(
            (space, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space]))
        )
    cls, sep = names["cls"], names["sep"]
    made.add_special_tokens([name for name in names.values() if name in pieces and rng.random() < 0.95])
    from tokenizers import AddedToken

    for name in rng.sample([*ADDED, *names.values()], rng.randint(0, 4)):
        made.add_tokens([AddedToken(**_token(rng, name, typed=False, special=rng.random() < 0.5))])
    known = [(name, made.token_to_id(name)) for name in dict.fromkeys((cls, sep))]
    if rng.random() < 0.75 and all(index is not None for _, index in known):
        made.post_processor = rng.choice(
            (
                processors.TemplateProcessing(
                    single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=known
                ),
                processors.RobertaProcessing((sep, known[-1][1]), (cls, known[0][1])),
                processors.BertProcessing((sep, known[-1][1]), (cls, known[0][1])),
            )
        )
    if rng.random() < 0.15:
        made.enable_padding(
            pad_token=names["pad"], pad_id=made.token_to_id(names["pad"]) or 0, length=rng.choice((None, 16))
        )
    if rng.random() < 0.15:
        made.enable_truncation(rng.choice((4, 8)))
    path.write_text(made.to_str(), "utf-8")
