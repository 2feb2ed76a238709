"""Load and save a Hugging Face `tokenizers` tokenizer."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_file
from brimful.corpus.text.folder_files import (
    CONFIG,
    TOKENIZER,
    VOCABULARIES,
    find_vocabulary_file,
    lowers_text,
    normalizer_steps,
)
from brimful.corpus.text.folder_tokenizer import BACKENDS, read_folder
from brimful.corpus.text.markers import ids_around, plain_markers
from brimful.corpus.text.special_ids import (
    CONFIG_KEYS,
    TOKEN_NAMES,
    TokenizerSettings,
    remember_settings,
    settings_of,
    special_ids,
    special_tokens,
    token_name,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CORPUS_FILES = ("plan.json", "MANIFEST.json")
_MAX_IGNORED_CHARACTERS = 3
_CASED = r"[\p{Cased}&&\P{Case_Ignorable}]"
# A lookbehind needs alternatives of fixed lengths: one for each number of ignored characters.
_BEFORE = "|".join(_CASED + rf"\p{{Case_Ignorable}}{{{n}}}" for n in range(_MAX_IGNORED_CHARACTERS + 1))
_FINAL_SIGMA = rf"(?<={_BEFORE})Σ(?!\p{{Case_Ignorable}}*{_CASED})"
"""A capital sigma at the end of a word, which `str.lower` treats differently from others."""


def load(path: str | Path) -> "Tokenizer":
    """Load the tokenizer of a folder, or a tokenizer.json, a vocab.txt, or a vocab.json with its merges.txt.

    The ids are the same as from transformers' AutoTokenizer, whichever file holds a setting, with one
    exception: a marker of the model that a text spells, such as [SEP], is plain text (`markers`). Texts
    are lowered where sentence-transformers lowers them. Padding and truncation are switched off; the side on
    which texts are to be cut is remembered (`special_ids.truncation_side`).

    Args:
        path: a file or folder. Settings in the files beside a file apply too.

    Raises:
        BrimfulError: there is no tokenizer, or it cannot be read, or it lacks a token that an encoder needs.
    """
    tokenizer = read(path)
    special_ids(tokenizer)
    return tokenizer


def read(path: str | Path) -> "Tokenizer":
    """Load a tokenizer as `load` does, even if it lacks a token that an encoder needs."""
    folder, file = _find_tokenizer(Path(path))
    tokenizer, facts = read_folder(folder, file)
    unspelled: set[str] = set()
    if file is None and lowers_text(folder):
        tokenizer, unspelled = lower_first(tokenizer)
    roles = {}
    for role, keys in CONFIG_KEYS.items():
        # The first key that the files set counts, such as cls_token before bos_token.
        name = next(filter(None, map(facts["roles"].get, keys)), None)
        if name and tokenizer.token_to_id(name) is not None:
            roles[role] = name
    settings = TokenizerSettings(
        roles=roles,
        side=facts["side"],
        token_types=facts["token_types"],
        owner=f"the tokenizer of {file or folder}",
    )
    remember_settings(tokenizer, settings)
    if file is None and any((folder / name).is_file() for name in _CORPUS_FILES):
        # In shards of older versions, all special tokens of a text are plain text, not only the markers.
        tokenizer.encode_special_tokens = True
        return tokenizer
    names = {role: token_name(tokenizer, role) for role in TOKEN_NAMES}
    tokens_around = set(filter(None, map(tokenizer.id_to_token, ids_around(tokenizer))))
    if not tokens_around and names["cls"] and names["sep"] and names["cls"] != names["sep"]:
        warn(
            f"{folder}: its tokenizer puts no {names['cls']} and {names['sep']} around texts, as its files"
            " say (transformers does the same); if the model was trained with them, write a post_processor"
            f" into its {TOKENIZER}"
        )
    # The files may name tokens that have no role here, such as a bos_token beside a cls_token.
    markers = {*facts["roles"].values(), *filter(None, names.values())} | tokens_around | unspelled
    plain = plain_markers(tokenizer, markers, splits=facts["splits"])
    remember_settings(plain, settings)
    return plain


def lower_first(tokenizer: "Tokenizer") -> tuple["Tokenizer", set[str]]:
    """Return a tokenizer that lowers texts first, and the added tokens that no lowered text can spell.

    sentence-transformers (`do_lower_case`) calls Python's `str.lower`. Here the first steps of the normalizer
    do the same, so that offsets still point into the text as it was.
    """
    from tokenizers import Regex, Tokenizer, normalizers

    state = json.loads(tokenizer.to_str())
    steps = normalizer_steps(state)
    lowering = [normalizers.Replace(Regex(_FINAL_SIGMA), "ς"), normalizers.Lowercase()]
    lowering_steps = [json.loads(step.__getstate__()) for step in lowering]
    if steps[:2] == lowering_steps:
        return tokenizer, set()
    unspelled = set()
    for token in state["added_tokens"]:
        content, lowered = token["content"], token["content"].lower()
        if tokenizer.normalizer and token["normalized"]:
            content, lowered = map(tokenizer.normalizer.normalize_str, (content, lowered))
        if content != lowered:
            unspelled.add(token["content"])
        # The text is lowered in the normalizer, so tokens must be found after it.
        token["normalized"] = True
    state["normalizer"] = {"type": "Sequence", "normalizers": [*lowering_steps, *steps]}
    return Tokenizer.from_str(json.dumps(state)), unspelled


def require_rows(tokenizer: "Tokenizer", rows: int, where: str) -> None:
    """Refuse a tokenizer whose texts get ids that a model has no embedding for.

    A mask token without an embedding is dropped from the settings, since texts never contain it.

    Args:
        rows: the number of rows of the model's embeddings, which may exceed the number of ids.
        where: the tokenizer's file, for messages.

    Raises:
        BrimfulError: a piece, an added token, or a special token that an encoder needs is beyond the rows.
    """
    settings = settings_of(tokenizer)
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    pieces.pop("", None)
    mask = tokenizer.token_to_id(settings.roles.get("mask", ""))
    ids = {*pieces.values(), *ids_around(tokenizer)}
    for name in settings.roles.values():
        role_id = tokenizer.token_to_id(name) if name else None
        if role_id is not None and role_id != mask:
            ids.add(role_id)
    for index, token in tokenizer.get_added_tokens_decoder().items():
        if not token.special or token.content in pieces:
            ids.add(index)
    highest = max(ids, default=-1)
    if highest >= rows:
        raise BrimfulError(
            f"{where} is not this model's: it has ids up to {highest:,} ({tokenizer.id_to_token(highest)}),"
            f" and the model has {rows:,} embeddings (vocab_size of config.json); put the tokenizer's own"
            " files back"
        )
    if mask is not None and mask >= rows:
        remember_settings(tokenizer, replace(settings, roles={**settings.roles, "mask": ""}))


def _find_tokenizer(path: Path) -> tuple[Path, Path | None]:
    """Return the folder of a tokenizer, and the file to read in place of its tokenizer.json, or None."""
    if not path.exists():
        raise BrimfulError(f"no tokenizer at {path}: give a folder or a file that exists")
    if path.is_dir():
        if find_vocabulary_file(path) is None:
            raise BrimfulError(
                f"no tokenizer in {path} (looked for {', '.join(VOCABULARIES)}, *.model): copy the files of"
                " the tokenizer there"
            )
        return path, None
    if path.name == TOKENIZER or path.suffix == ".model":
        return path.parent, None  # the folder's tokenizer reads this file
    return path.parent, path


def tokenizer_hash(tokenizer: "Tokenizer") -> str:
    """Return a short hash of a tokenizer. Tokenizers with equal hashes give equal ids."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]


def save(
    tokenizer: "Tokenizer", directory: str | Path, *, model_max_length: int = 512, segments: bool = True
) -> None:
    """Write tokenizer.json and the tokenizer_config.json that `transformers.AutoTokenizer` reads.

    Args:
        model_max_length: the length to which `transformers` truncates on request.
        segments: whether `transformers` should hand the model `token_type_ids` (BERT takes them, ModernBERT
            refuses them).
    """
    directory = Path(directory)
    segment_input = ["token_type_ids"] if segments else []
    settings = {
        "tokenizer_class": BACKENDS[0],
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", *segment_input, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
    if settings_of(tokenizer).side == "left":
        settings["truncation_side"] = "left"
    for role, (name, _) in special_tokens(tokenizer).items():
        settings[f"{role}_token"] = name
    with atomic_file(directory / CONFIG) as temporary:
        temporary.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    # tokenizer.json comes last: a folder that has it is complete.
    with atomic_file(directory / TOKENIZER) as temporary:
        temporary.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
