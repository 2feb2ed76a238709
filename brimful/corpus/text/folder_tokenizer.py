"""The tokenizer of a Hugging Face folder, with the ids that transformers' AutoTokenizer gives (version 5.23).

The class decides which files count (`folder_classes`), the files decide its settings (`folder_settings`).
Nothing here knows of markers that are plain text (`markers`).
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.folder_classes import (
    BERT,
    ROBERTA,
    Names,
    OtherClassError,
    TokenizerClass,
    Vocabulary,
    special_tokens,
    tokenizer_class,
)
from brimful.corpus.text.folder_settings import (
    CONFIG,
    FolderSettings,
    json_file,
    read_settings,
    read_values,
    side_of,
    token_name,
    values_beside,
)
from brimful.corpus.text.special_ids import remember_side
from brimful.corpus.text.tokenizer_files import merge_pair, require_ids
from brimful.corpus.text.vocabulary_files import read_vocabulary

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_MOST_SHOWN = 3
_warned: set[Path] = set()


@dataclass
class FolderTokenizer:
    """What a folder holds.

    Attributes:
        tokenizer: without padding and truncation.
        roles: the names of its special tokens, by key (cls_token, ...), of those that have one.
        splits: whether the folder itself says that special tokens in a text are plain text.
    """

    tokenizer: "Tokenizer"
    roles: dict[str, str]
    splits: bool


def chosen_class(folder: Path, given: Path | None = None) -> TokenizerClass | None:
    """The class that reads a folder; None for the tokenizer.json as it is.

    Args:
        given: a vocab.txt or vocab.json that the user names, to be read in place of a tokenizer.json.

    Raises:
        BrimfulError: transformers has another class for it.
    """
    config = values_beside(folder, CONFIG)
    model = values_beside(folder, "config.json")
    try:
        kind = tokenizer_class(model, config)
    except OtherClassError as error:
        where = folder / (CONFIG if "tokenizer_class" in config else "config.json")
        written = f"AutoTokenizer.from_pretrained({str(folder)!r}).backend_tokenizer.save('tokenizer.json')"
        raise BrimfulError(
            f"{where} says {error}, whose pipeline is not known here; where it has a backend_tokenizer, write"
            f' that out and name it: {written}, and "tokenizer_class": "PreTrainedTokenizerFast" in {CONFIG}'
        ) from error
    if given is not None and given.name not in ("vocab.txt", "vocab.json") and given.suffix == ".json":
        return None
    if given is None and json_file(folder, config) is not None:
        return kind
    if given is None and kind is not None and (folder / kind.file).is_file():
        return kind
    present = given or next((p for n in ("vocab.txt", "vocab.json") if (p := folder / n).is_file()), None)
    if kind is not None and (present is None or Path(kind.file).suffix == present.suffix):
        return kind
    # Here AutoTokenizer finds nothing.
    return kind if present is None else ROBERTA if present.suffix == ".json" else BERT


def read_folder(folder: Path, given: Path | None = None) -> FolderTokenizer:
    """Read all tokenizer files of a folder.

    Args:
        given: a vocab.txt or vocab.json that the user names, to be read in place of a tokenizer.json.

    Raises:
        BrimfulError: a file is missing or damaged, the files do not fit together, or transformers has a
            class for them that is not known here.
    """
    kind = chosen_class(folder, given)
    config = values_beside(folder, CONFIG)
    file = None if given is not None else json_file(folder, config)
    state = None if file is None else _state(file)
    settings = read_settings(folder, config, state)
    if file is not None and kind is not None and "tokenizer_class" not in config:
        kind = _unless_another(kind, state, file)
    names = special_tokens(kind, settings)
    path = file or given or folder / (kind.file if kind else "tokenizer.json")
    try:
        if kind is None:
            tokenizer = _as_it_is(path, settings, names)
        else:
            vocabulary = _of_json(state) if state is not None else read_vocabulary(path)
            tokenizer = kind.build(vocabulary, settings, names)
            if state is not None and kind.around is None and state.get("post_processor"):
                tokenizer.post_processor = _processor(state)
        pieces = tokenizer.get_vocab(with_added_tokens=False)
        require_ids(pieces.values(), path)
        tokenizer = _without_gaps(_finished(tokenizer, kind, settings, names), pieces)
    except BrimfulError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot take
        reason = " ".join(str(error).split())
        remedy = "put back the files that belong together"
        if kind is None:
            raise BrimfulError(
                f"{path} is not a tokenizer.json that `tokenizers` can read ({reason})"
            ) from error
        raise BrimfulError(f"cannot read {path} as {kind.names[0]} ({reason:.200}); {remedy}") from error
    roles = {key: token_name(token) for key, token in names.items() if token is not None}
    if kind is not None:
        _require_unknown(tokenizer, path)
        if "do_lower_case" not in settings.values:
            _warn_of_capitals(tokenizer, path)
    remember_side(tokenizer, side_of(config, state))
    return FolderTokenizer(tokenizer, roles, settings.values.get("split_special_tokens") is True)


def _unless_another(kind: TokenizerClass, state: dict[str, Any] | None, file: Path) -> TokenizerClass | None:
    """The class that transformers takes for a tokenizer.json; None for WordPiece classes if the file has
    another model, of which they would make nonsense."""
    model = (state or {}).get("model")
    found = model.get("type") if isinstance(model, dict) else None
    if kind.file != "vocab.txt" or found not in ("BPE", "Unigram"):
        return kind
    if file not in _warned:
        _warned.add(file)
        warn(
            f"{file} is a {found} model: it is read as it stands, though transformers takes it for"
            f" {kind.names[0]}, since no file names its class; write"
            f' "tokenizer_class": "PreTrainedTokenizerFast" into {CONFIG} beside it'
        )
    return None


def _state(file: Path) -> dict[str, Any]:
    try:
        return read_values(file)
    except BrimfulError as error:
        raise BrimfulError(
            f"{file} is not a tokenizer.json ({error}); put back the one that belongs here"
        ) from error


def _as_it_is(file: Path, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8-sig"))
    if tokenizer.padding is not None and "pad_token" not in settings.values:
        names["pad_token"] = tokenizer.padding["pad_token"]
    return tokenizer


def _of_json(state: Mapping[str, Any]) -> Vocabulary:
    """What a class takes of a tokenizer.json."""
    model = state.get("model") or {}
    pieces = model.get("vocab") or {}
    merges = [merge_pair(merge) for merge in model.get("merges") or []]
    if isinstance(pieces, list):
        pieces = [tuple(each) if isinstance(each, list) else (each, 0.0) for each in pieces]
    return Vocabulary(pieces, merges, _characters(state.get("normalizer")))


def _characters(normalizer: Mapping[str, Any] | None) -> bytes | None:
    """SentencePiece's character map, where it is a normalizer or one of several."""
    steps = [] if not normalizer else normalizer.get("normalizers", [normalizer])
    for step in steps:
        if step.get("type") == "Precompiled" and step.get("precompiled_charsmap"):
            return base64.b64decode(step["precompiled_charsmap"])
    return None


def _processor(state: Mapping[str, Any]) -> Any:
    """The post-processor of a tokenizer.json, without reading its vocabulary."""
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    bare = {**state, "added_tokens": [], "model": model, "normalizer": None, "pre_tokenizer": None}
    return Tokenizer.from_str(json.dumps(bare)).post_processor


def _finished(
    tokenizer: "Tokenizer", kind: TokenizerClass | None, settings: FolderSettings, names: Names
) -> "Tokenizer":
    """Add the tokens that the settings name, in the order of transformers, and put ends around texts."""
    from tokenizers import Tokenizer

    tokenizer.no_truncation()
    tokenizer.no_padding()
    updates = "add_bos_token" in settings.values or "add_eos_token" in settings.values
    updates |= tokenizer.post_processor is None
    if _add(tokenizer, settings, names):
        tokenizer = Tokenizer.from_str(tokenizer.to_str())

    def find(role: str) -> int:
        token = names.get(role)
        index = None if token is None else tokenizer.token_to_id(token_name(token))
        if index is None and token is not None and role != "unk_token":
            return find("unk_token")
        if index is None:
            raise ValueError(f"the vocabulary has no {role}")
        return index

    if kind is not None and kind.around is not None:
        tokenizer.post_processor = kind.around(tokenizer, settings, names, find)
    elif updates:
        tokenizer.post_processor = _bos_and_eos(settings, names, find)
    return tokenizer


def _bos_and_eos(settings: FolderSettings, names: Names, find: Any) -> Any:
    """What the backend puts around texts by itself: bos and eos where the settings ask for them."""
    from tokenizers import processors

    ends = [
        token_name(names[f"{end}_token"])
        if settings.values.get(f"add_{end}_token") and names[f"{end}_token"]
        else ""
        for end in ("bos", "eos")
    ]
    bos, eos = ends
    single = f"{f'{bos}:0 ' if bos else ''}$A:0{f' {eos}:0' if eos else ''}"
    pair = f"{single}{f' {bos}:1' if bos else ''} $B:1{f' {eos}:1' if eos else ''}"
    used = [(name, find(f"{end}_token")) for end, name in zip(("bos", "eos"), ends, strict=True) if name]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)


def _add(tokenizer: "Tokenizer", settings: FolderSettings, names: Names) -> bool:
    """Add the tokens that the settings name; whether one of them was special before and is no longer."""
    from tokenizers import AddedToken

    tokens: list[AddedToken | str] = [token for _, token in sorted(settings.added.items())]
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    known |= {token_name(token) for token in tokens}
    values = settings.values
    extra = values.get("extra_special_tokens", values.get("additional_special_tokens"))
    extra = [_special(each) if isinstance(each, dict) else each for each in extra or []]
    for token in [*names.values(), *extra]:
        if token is not None and token_name(token) not in known and token not in tokens:
            tokens.append(token)
    named = {token_name(token) for token in names.values() if token is not None}
    added = []
    for token in tokens:
        if isinstance(token, str):
            token = AddedToken(token, special=True)
        elif not token.special and token.content in named:
            token.special = True
        added.append(token)
    before = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    tokenizer.add_tokens(added)
    after = tokenizer.get_added_tokens_decoder().values()
    # `tokenizers` goes on to pass over a token that was special once.
    return bool(
        (before | {token.content for token in added if token.special})
        & {t.content for t in after if not t.special}
    )


def _special(values: Mapping[str, Any]) -> "AddedToken":
    from tokenizers import AddedToken

    return AddedToken(**{**values, "special": True})


def _without_gaps(tokenizer: "Tokenizer", pieces: Mapping[str, int]) -> "Tokenizer":
    """The tokenizer with a name that no text has for each id without a piece: those of empty lines, and all
    but the last of equal lines. Where tokens were added, their ids count the pieces, and gaps stay."""
    from tokenizers import Tokenizer

    added = tokenizer.get_added_tokens_decoder().values()
    last = max((index for piece, index in pieces.items() if piece), default=-1)
    if last + 1 == len(pieces) or any(token.content not in pieces for token in added):
        return tokenizer
    state = json.loads(tokenizer.to_str())
    if state["model"]["type"] == "Unigram":
        return tokenizer
    names = dict.fromkeys(range(last + 1)) | {index: piece for piece, index in pieces.items() if piece}
    state["model"]["vocab"] = {f"[line {index}]" if n is None else n: index for index, n in names.items()}
    return Tokenizer.from_str(json.dumps(state))


def _require_unknown(tokenizer: "Tokenizer", path: Path) -> None:
    """Refuse a WordPiece model whose unknown token is no piece of it: an unknown word is an error there."""
    model = tokenizer.model
    unknown = getattr(model, "unk_token", None)
    if type(model).__name__ == "WordPiece" and model.token_to_id(unknown) is None:
        raise BrimfulError(
            f"{path} lacks {unknown}, its token for unknown words; name another as unk_token in {CONFIG}"
        )


def _warn_of_capitals(tokenizer: "Tokenizer", path: Path) -> None:
    """Say that a vocabulary has pieces with capitals while texts are read in lower case, unasked."""
    from tokenizers.normalizers import BertNormalizer

    normalizer = tokenizer.normalizer
    if path in _warned or not isinstance(normalizer, BertNormalizer) or not normalizer.lowercase:
        return
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    capitals = [
        piece
        for piece in sorted(pieces.keys() - added, key=pieces.__getitem__)
        if piece != piece.lower() and not (piece[0] == "[" and piece[-1] == "]")
    ]
    if capitals:
        _warned.add(path)
        shown = ", ".join(capitals[:_MOST_SHOWN])
        warn(
            f"{path}: texts are read in lower case, as transformers does without a setting, so"
            f" {len(capitals):,} of {len(pieces):,} pieces can never occur ({shown}); if cased, write"
            f' {{"do_lower_case": false}} into {path.with_name(CONFIG)}'
        )
