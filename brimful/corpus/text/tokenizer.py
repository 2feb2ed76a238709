"""Load and save a Hugging Face `tokenizers` tokenizer."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file
from brimful.corpus.text.folder_files import CONFIG, TOKENIZER, VOCABULARIES, find_vocabulary_file
from brimful.corpus.text.folder_tokenizer import BACKENDS, read_folder
from brimful.corpus.text.lower_first import lower_first
from brimful.corpus.text.markers import plain_markers
from brimful.corpus.text.sentence_folder import lowers_text
from brimful.corpus.text.special_ids import (
    CONFIG_KEYS,
    TOKEN_NAMES,
    TokenizerSettings,
    remember_settings,
    settings_of,
    special_ids,
    special_tokens,
    token_name,
    truncation_side,
)
from brimful.corpus.text.tokenizer_json import ids_around

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CORPUS_FILES = ("plan.json", "MANIFEST.json")


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
    tokenizer, facts = read_folder(folder, given)
    never: set[str] = set()
    if given is None and lowers_text(folder):
        tokenizer, never = lower_first(tokenizer)
    roles = _roles_in(facts["roles"], tokenizer)
    owner = f"the tokenizer of {given or folder}"
    remember_settings(tokenizer, TokenizerSettings(roles, facts["side"], facts["token_types"], owner))
    if given is None and any((folder / name).is_file() for name in _CORPUS_FILES):
        # In shards of older versions all special tokens of a text are plain text, not the markers alone.
        tokenizer.encode_special_tokens = True
        return tokenizer
    ends = {tokenizer.id_to_token(index) or "" for index in ids_around(tokenizer)}
    names = {role: name for role in TOKEN_NAMES if (name := token_name(tokenizer, role)) is not None}
    if not ends and {"cls", "sep"} <= names.keys() and names["cls"] != names["sep"]:
        warn(
            f"{folder}: its tokenizer puts no {names['cls']} and {names['sep']} around texts, as its files"
            " say (transformers does the same); if the model was trained with them, write a post_processor"
            f" into its {TOKENIZER}"
        )
    markers = {*facts["roles"].values(), *names.values()} | ends | never
    plain = plain_markers(tokenizer, markers, splits=facts["splits"])
    remember_settings(plain, settings_of(tokenizer))
    return plain


def _roles_in(names: Mapping[str, str], tokenizer: "Tokenizer") -> dict[str, str]:
    """The special tokens that the vocabulary has, by role.

    Args:
        names: as tokenizer_config.json has them, by its keys (`cls_token`).
    """
    roles = {}
    for role, keys in CONFIG_KEYS.items():
        name = next((names[key] for key in keys if names.get(key)), None)
        if name is not None and tokenizer.token_to_id(name) is not None:
            roles[role] = name
    return roles


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
    said = settings_of(tokenizer)
    needed = [tokenizer.token_to_id(name) for name in said.roles.values() if name]
    mask = tokenizer.token_to_id(said.roles.get("mask", ""))
    around = ids_around(tokenizer)
    highest = max((*own.values(), *added, *around, *(i for i in needed if i not in (None, mask))), default=-1)
    if highest >= rows:
        name = tokenizer.id_to_token(highest)
        raise BrimfulError(
            f"{where} is not this model's: it has ids up to {highest:,} ({name}), and the model has {rows:,}"
            " embeddings (vocab_size of config.json); put the tokenizer's own files back"
        )
    if mask is not None and mask >= rows:
        remember_settings(tokenizer, replace(said, roles={**said.roles, "mask": ""}))


def _place(path: Path) -> tuple[Path, Path | None]:
    """The folder, and the file that is to be read in place of its tokenizer.json, if one is."""
    if not path.exists():
        raise BrimfulError(f"no tokenizer at {path}: name one that there is, a folder or a file")
    if path.is_dir():
        if find_vocabulary_file(path) is None:
            raise BrimfulError(
                f"no tokenizer in {path} (looked for {', '.join(VOCABULARIES)}, *.model): copy the files of"
                " the tokenizer there"
            )
        return path, None
    is_of_folder = path.name == TOKENIZER or path.suffix == ".model"
    return path.parent, None if is_of_folder else path


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
        "tokenizer_class": BACKENDS[0],
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        **({"truncation_side": "left"} if truncation_side(tokenizer) == "left" else {}),
        **{f"{role}_token": name for role, (name, _) in special_tokens(tokenizer).items()},
    }
    with atomic_file(directory / CONFIG) as temporary:
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    with atomic_file(directory / TOKENIZER) as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
