"""Load and save a Hugging Face `tokenizers` tokenizer, and find its special tokens."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from brimful.errors import BrimfulError
from brimful.storage import atomic_file, read_object
from brimful.text.vocabulary_files import load_byte_level, load_wordpiece

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens; `unk` is None where the tokenizer can spell everything, `mask` where the
    vocabulary has none."""

    pad: int
    unk: int | None
    cls: int
    sep: int
    mask: int | None


_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
_KEYS = {role: (f"{role}_token",) for role in _NAMES} | {
    "cls": ("cls_token", "bos_token"),
    "sep": ("sep_token", "eos_token"),
}
"""The keys of tokenizer_config.json and special_tokens_map.json, by the role of the token."""
# A tokenizer.json does not say which token has which role, and takes long to read where it is large.
_said: "WeakKeyDictionary[Tokenizer, dict[str, str]]" = WeakKeyDictionary()
_unknown: "WeakKeyDictionary[Tokenizer, int]" = WeakKeyDictionary()


def _special_tokens(tokenizer: "Tokenizer") -> dict[str, tuple[str, int]]:
    """The names and ids of the special tokens that the vocabulary has, by role: those that the files beside
    it say, else those of BERT or RoBERTa."""
    said = _said.get(tokenizer, {})
    found = {}
    for role, known in _NAMES.items():
        candidates = (said[role],) if role in said else known
        for name in candidates:
            if (index := tokenizer.token_to_id(name)) is not None:
                found[role] = (name, index)
                break
        if role not in found and role in ("pad", "cls", "sep"):
            raise _missing(role)
    return found


def _missing(role: str) -> BrimfulError:
    looked = ", ".join(_NAMES[role])
    keys = " or ".join(_KEYS[role])
    return BrimfulError(
        f"the tokenizer has no {role} token (looked for {looked}); name it as {keys} in tokenizer_config.json"
    )


def special_ids(tokenizer: "Tokenizer") -> SpecialIds:
    """Ids of the special tokens, under the names that the files beside the tokenizer say, or else those of
    BERT ([CLS]) or RoBERTa (<s>).

    Raises:
        BrimfulError: one that an encoder needs is missing.
    """
    ids = {role: index for role, (_, index) in _special_tokens(tokenizer).items()}
    return SpecialIds(ids["pad"], ids.get("unk"), ids["cls"], ids["sep"], ids.get("mask"))


def mask_id(tokenizer: "Tokenizer") -> int:
    """The id of the mask token.

    Raises:
        BrimfulError: a special token is missing.
    """
    found = special_ids(tokenizer).mask
    if found is None:
        raise _missing("mask")
    return found


def unknown_id(tokenizer: "Tokenizer") -> int:
    """The id of the unknown token, or -1 where the tokenizer can spell everything."""
    if tokenizer not in _unknown:
        model = json.loads(tokenizer.to_str())["model"]
        name = model.get("unk_token")
        found = tokenizer.token_to_id(name) if name else model.get("unk_id")
        _unknown[tokenizer] = -1 if found is None else found
    return _unknown[tokenizer]


def named_specials(tokenizer: "Tokenizer") -> set[int]:
    """Ids of the pieces that have the name of a special token."""
    names = {name for names in _NAMES.values() for name in names} | {*_said.get(tokenizer, {}).values()}
    return {index for name in names if (index := tokenizer.token_to_id(name)) is not None}


def named_as(tokenizer: "Tokenizer", other: "Tokenizer") -> "Tokenizer":
    """The tokenizer, which was made of another one: its special tokens have the names of the other's."""
    _said[tokenizer] = _said.get(other, {})
    return tokenizer


def _names_beside(file: Path) -> dict[str, str]:
    """What the files beside a tokenizer call the special tokens, by role."""
    values: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = file.with_name(name)
        values |= {k: v for k, v in read_object(path).items() if v} if path.is_file() else {}
    found = {}
    for role, keys in _KEYS.items():
        said = next((values[key] for key in keys if key in values), None)
        content = said.get("content") if isinstance(said, dict) else said
        if isinstance(content, str):
            found[role] = content
    return found


def load(path: str | Path, *, lowercase: bool = True) -> "Tokenizer":
    """Load a tokenizer.json, a BERT vocab.txt, a RoBERTa vocab.json with its merges.txt, or a folder of them.

    Padding and truncation that the file asks for are switched off.

    Args:
        path: file or folder; in a folder, a tokenizer.json comes first.
        lowercase: for a vocab.txt without a tokenizer_config.json beside it that says `do_lower_case`.

    Raises:
        BrimfulError: there is no tokenizer, it cannot be read, or it lacks a token that an encoder needs.
    """
    tokenizer = read(path, lowercase=lowercase)
    special_ids(tokenizer)
    return tokenizer


def read(path: str | Path, *, lowercase: bool = True) -> "Tokenizer":
    """The same, whatever tokens it lacks."""
    file = _file(Path(path))
    if file.suffix == ".txt":
        tokenizer = load_wordpiece(file, lowercase)
    elif file.name == "vocab.json":
        tokenizer = load_byte_level(file)
    else:
        tokenizer = _load_json(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _said[tokenizer] = {
        role: name for role, name in _names_beside(file).items() if tokenizer.token_to_id(name) is not None
    }
    return tokenizer


def tokenizer_file(directory: Path) -> Path | None:
    """The file that `load` reads the tokenizer of a folder from, or None: tokenizer.json, vocab.txt, or a
    vocab.json with a merges.txt."""
    return next((directory / name for name in _FILES if (directory / name).is_file()), None)


def _file(path: Path) -> Path:
    file = tokenizer_file(path) if path.is_dir() else path if path.is_file() else None
    model = next(iter(sorted(path.glob("*.model"))), None) if file is None and path.is_dir() else file
    if model is not None and model.suffix == ".model":
        raise BrimfulError(
            f"{model} is a SentencePiece model; make a tokenizer.json (needs transformers, sentencepiece): "
            f'python -c "from transformers import AutoTokenizer as A; '
            f"A.from_pretrained('{model.parent}').save_pretrained('{model.parent}')\""
        )
    if file is None and path.is_dir():
        raise BrimfulError(
            f"no tokenizer in {path} (looked for {', '.join(_FILES)}): copy the files of the tokenizer there"
        )
    if file is None:
        raise BrimfulError(f"no tokenizer at {path}: name one that there is, a folder or a file")
    return file


def _load_json(file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        reason = " ".join(str(error).split())
        raise BrimfulError(f"{file} is not a tokenizer.json that `tokenizers` can read ({reason})") from error


def tokenizer_hash(tokenizer: "Tokenizer") -> str:
    """A short hash that names a tokenizer: equal hashes, equal ids."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def save(
    tokenizer: "Tokenizer", directory: str | Path, *, model_max_length: int = 512, segments: bool = True
) -> None:
    """Write tokenizer.json and the tokenizer_config.json that `transformers.AutoTokenizer` reads.

    tokenizer.json comes last: where it is, the folder is complete.

    Args:
        model_max_length: where `transformers` truncates if asked to.
        segments: whether `transformers` should hand the model `token_type_ids` (BERT takes them, ModernBERT
            refuses them).
    """
    directory = Path(directory)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, (name, _) in _special_tokens(tokenizer).items()},
    }
    with atomic_file(directory / "tokenizer_config.json") as temporary:
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_file(directory / "tokenizer.json") as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
