"""Load and save a Hugging Face `tokenizers` tokenizer, and find its special tokens."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.errors import BrimfulError
from brimful.storage import atomic_file
from brimful.text.vocabulary_files import load_byte_level, load_wordpiece

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens; `unk` is None where the tokenizer can spell everything."""

    pad: int
    unk: int | None
    cls: int
    sep: int
    mask: int


_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}


def _special_names(tokenizer: "Tokenizer") -> dict[str, str]:
    found = {}
    for role, names in _NAMES.items():
        for name in names:
            if tokenizer.token_to_id(name) is not None:
                found[role] = name
                break
        else:
            if role != "unk":
                raise BrimfulError(
                    f"the tokenizer has no {role} token (looked for {', '.join(names)}); "
                    "add it to the tokenizer, or train one with tokenizer=train:8000"
                )
    return found


def special_ids(tokenizer: "Tokenizer") -> SpecialIds:
    """Ids of the special tokens, under the names of BERT ([CLS]) or RoBERTa (<s>).

    Raises:
        BrimfulError: one that an encoder needs is missing.
    """
    vocabulary = tokenizer.get_vocab()
    ids = {role: vocabulary[name] for role, name in _special_names(tokenizer).items()}
    return SpecialIds(pad=ids["pad"], unk=ids.get("unk"), cls=ids["cls"], sep=ids["sep"], mask=ids["mask"])


def unknown_id(tokenizer: "Tokenizer") -> int:
    """The id of the unknown token, or -1 where the tokenizer can spell everything."""
    model = json.loads(tokenizer.to_str())["model"]
    name = model.get("unk_token")
    found = tokenizer.token_to_id(name) if name else model.get("unk_id")
    return -1 if found is None else found


def named_specials(tokenizer: "Tokenizer") -> set[int]:
    """Ids of the pieces that have the name of a special token."""
    found = {tokenizer.token_to_id(name) for names in _NAMES.values() for name in names}
    return {index for index in found if index is not None}


def load(path: str | Path, *, lowercase: bool = True) -> "Tokenizer":
    """Load a tokenizer.json, a BERT vocab.txt, a RoBERTa vocab.json with its merges.txt, or a folder of them.

    Padding and truncation that the file asks for are switched off.

    Args:
        path: file or folder; in a folder, a tokenizer.json comes first.
        lowercase: for a vocab.txt without a tokenizer_config.json beside it that says `do_lower_case`.

    Raises:
        BrimfulError: there is no tokenizer, it cannot be read, or it lacks a token that an encoder needs.
    """
    file = _file(Path(path))
    if file.suffix == ".txt":
        tokenizer = load_wordpiece(file, lowercase)
    elif file.name == "vocab.json":
        tokenizer = load_byte_level(file)
    else:
        tokenizer = _load_json(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special_ids(tokenizer)
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
    if file is None:
        where = f"in {path} (looked for {', '.join(_FILES)})" if path.is_dir() else f"at {path}"
        raise BrimfulError(f"no tokenizer {where}; give train:8000, a folder or a file")
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
    names = _special_names(tokenizer)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, name in names.items()},
    }
    with atomic_file(directory / "tokenizer_config.json") as temporary:
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_file(directory / "tokenizer.json") as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
