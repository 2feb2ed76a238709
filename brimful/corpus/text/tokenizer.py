"""Load and save a Hugging Face `tokenizers` tokenizer."""

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file
from brimful.corpus.text.folder_classes import tokenizer_class
from brimful.corpus.text.folder_settings import ADDED, CONFIG, MAP, ROLES, side_of, values_beside
from brimful.corpus.text.folder_tokenizer import read_folder
from brimful.corpus.text.lower_first import lower_first
from brimful.corpus.text.markers import plain_markers
from brimful.corpus.text.sentence_folder import lowers_text
from brimful.corpus.text.special_ids import (
    NAMES,
    name_of,
    remember_roles,
    remember_side,
    roles_in,
    roles_of,
    special_ids,
    special_tokens,
    truncation_side,
)
from brimful.corpus.text.tokenizer_files import MOST_IDS, ids_of_processor, require_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer


_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_CLASS = "PreTrainedTokenizerFast"
_USUAL_CLASSES = {"WordPiece": "BertTokenizer", "BPE": "RobertaTokenizer", "Unigram": "XLMRobertaTokenizer"}
"""Classes that put ends around texts, by the kind of their vocabulary."""
_SAVED = ("tokenizer_class", "model_max_length", "model_input_names", "clean_up_tokenization_spaces")
_SIDE = "truncation_side"
_LARGE = re.compile(rf'": ?\d{{{len(str(MOST_IDS))},}}')
"""What an id of a tokenizer.json that `MOST_IDS` forbids looks like."""
_bare: set[Path] = set()


def load(path: str | Path) -> "Tokenizer":
    """Load the tokenizer of a folder, or a tokenizer.json, a vocab.txt, or a vocab.json with its merges.txt.

    The ids are those of transformers' AutoTokenizer, whatever file of the folder has a setting, with one
    departure: a text that spells a marker of the model, such as [SEP], is plain text (`markers`). Texts are
    lowered where sentence-transformers lowers them. Padding and truncation are switched off; the side on
    which texts are to be cut is remembered (`special_ids.truncation_side`).

    Args:
        path: file or folder. The settings beside a file count.

    Raises:
        BrimfulError: there is no tokenizer, it cannot be read, or it lacks a token that an encoder needs.
    """
    tokenizer = read(path)
    special_ids(tokenizer)
    return tokenizer


def read(path: str | Path) -> "Tokenizer":
    """The same, whatever tokens it lacks."""
    folder, given = _place(Path(path))
    if given is None and _is_own(folder):
        tokenizer = _load_json(folder / "tokenizer.json")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        config = values_beside(folder, CONFIG)
        remember_roles(tokenizer, roles_in(config, tokenizer))
        remember_side(tokenizer, side_of(config, None))
        return tokenizer
    found = read_folder(folder, given)
    tokenizer, never = lower_first(found.tokenizer) if lowers_text(folder) else (found.tokenizer, set[str]())
    roles = roles_in(found.roles, tokenizer)
    remember_roles(tokenizer, roles)
    ends = {tokenizer.id_to_token(index) or "" for index in _ids_around(tokenizer)}
    known = {role: name for role in NAMES if (name := name_of(tokenizer, role)) is not None}
    names = {found.roles[key] for key in ROLES if key in found.roles} | ends | {*known.values()}
    plain = plain_markers(tokenizer, names | never, splits=found.splits)
    remember_roles(plain, roles)
    remember_side(plain, truncation_side(found.tokenizer))
    if not ends and {"cls", "sep"} <= known.keys() and known["cls"] != known["sep"]:
        _warn_of_bare_texts(folder, known, type(tokenizer.model).__name__)
    return plain


def _ids_around(tokenizer: "Tokenizer") -> list[int]:
    processor = tokenizer.post_processor
    return ids_of_processor(None if processor is None else json.loads(processor.__getstate__()))


def _is_own(folder: Path) -> bool:
    """Whether the tokenizer of a folder is as `save` wrote it, so that nothing is left to be read.

    An older version wrote no `split_special_tokens`: the shards of its corpora have all special tokens as
    plain text, and the tokenizer stays what it was for them.
    """
    if any((folder / name).is_file() for name in (MAP, ADDED)) or not (folder / "tokenizer.json").is_file():
        return False
    if lowers_text(folder):
        return False
    config = values_beside(folder, CONFIG)
    keys = [key for key in config if key.removesuffix("_token") not in (*NAMES, _SIDE)]
    if keys == [*_SAVED, "split_special_tokens"]:
        return config["split_special_tokens"] is True and config["tokenizer_class"] == _CLASS
    corpus = any((folder / name).is_file() for name in ("plan.json", "MANIFEST.json"))
    return keys == [*_SAVED] and corpus


def _warn_of_bare_texts(folder: Path, known: dict[str, str], model: str) -> None:
    if folder in _bare:
        return
    _bare.add(folder)
    name = _USUAL_CLASSES.get(model, _CLASS)
    remedy = f"name its class as tokenizer_class in {CONFIG}, such as {name}"
    if tokenizer_class(values_beside(folder, "config.json"), {"tokenizer_class": name}) is None:
        remedy = "write a post_processor into its tokenizer.json"
    warn(
        f"{folder}: its tokenizer puts no {known['cls']} and {known['sep']} around texts, as its"
        f" files say (transformers does the same); if the model was trained with them, {remedy}"
    )


def require_rows(tokenizer: "Tokenizer", rows: int, where: str) -> None:
    """Refuse a tokenizer whose texts get ids that a model has no embedding for.

    A mask token without an embedding is forgotten: no text gets it.

    Args:
        rows: of the model's embeddings; more than the tokenizer has ids are no fault.
        where: the tokenizer's file, for messages.

    Raises:
        BrimfulError: a piece, an added token, or a special token that an encoder needs is beyond the rows.
    """
    own = tokenizer.get_vocab(with_added_tokens=False)
    own.pop("", None)
    added = {
        index: token.content
        for index, token in tokenizer.get_added_tokens_decoder().items()
        if not token.special or token.content in own
    }
    needed = [tokenizer.token_to_id(name) for name in roles_of(tokenizer).values() if name]
    mask = tokenizer.token_to_id(roles_of(tokenizer).get("mask", ""))
    around = _ids_around(tokenizer)
    highest = max((*own.values(), *added, *around, *(i for i in needed if i not in (None, mask))), default=-1)
    if highest >= rows:
        name = tokenizer.id_to_token(highest)
        raise BrimfulError(
            f"{where} is not this model's: it has ids up to {highest:,} ({name}), and the model has {rows:,}"
            " embeddings (vocab_size of config.json); put the tokenizer's own files back"
        )
    if mask is not None and mask >= rows:
        remember_roles(tokenizer, {**roles_of(tokenizer), "mask": ""})


def tokenizer_file(directory: Path) -> Path | None:
    """The file that `load` reads the vocabulary of a folder from, or None: tokenizer.json, vocab.txt, or a
    vocab.json with a merges.txt."""
    return next((directory / name for name in _FILES if (directory / name).is_file()), None)


def tokenizer_files(directory: Path) -> list[Path]:
    """All files of a folder that decide its tokenizer, without config.json."""
    names = (*_FILES, "merges.txt", CONFIG, MAP, ADDED)
    return [directory / name for name in names if (directory / name).is_file()]


def _place(path: Path) -> tuple[Path, Path | None]:
    """The folder, and the file that is to be read in place of its tokenizer.json, if one is."""
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
    if path.is_dir() or path.name == "tokenizer.json":
        return file.parent, None
    return file.parent, file


def _load_json(file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        text = file.read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
    except OSError as error:
        raise BrimfulError(f"cannot read {file}: {error.strerror}") from error
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        is_text = not isinstance(error, UnicodeDecodeError)
        reason = " ".join(str(error).split()) if is_text else "it is not UTF-8"
        raise BrimfulError(f"{file} is not a tokenizer.json that `tokenizers` can read ({reason})") from error
    if _LARGE.search(text):  # to ask for all ids takes half as long as to read them
        require_ids(tokenizer.get_vocab(with_added_tokens=False).values(), file)
    return tokenizer


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
        "tokenizer_class": _CLASS,
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        **({_SIDE: "left"} if truncation_side(tokenizer) == "left" else {}),
        **{f"{role}_token": name for role, (name, _) in special_tokens(tokenizer).items()},
    }
    with atomic_file(directory / "tokenizer_config.json") as temporary:
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_file(directory / "tokenizer.json") as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
