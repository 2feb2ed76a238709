"""The settings of a folder's tokenizer: what its JSON files say together, in the order that transformers has.

Special tokens stand in tokenizer_config.json, in special_tokens_map.json, or in both; added tokens in
`added_tokens_decoder` of tokenizer_config.json, in added_tokens.json, or in tokenizer.json. Where
tokenizer_config.json has an `added_tokens_decoder`, transformers reads neither special_tokens_map.json nor
added_tokens.json.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object
from brimful.corpus.text.special_ids import Side

if TYPE_CHECKING:
    from tokenizers import AddedToken

CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The keys of the special tokens, in the order in which transformers adds them."""
_NEWEST = (5, 23)
"""Versions of transformers whose `fast_tokenizer_files` are read, up to this one."""
_PARTS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass
class FolderSettings:
    """What the files of a folder say of its tokenizer.

    Attributes:
        values: the keys of tokenizer_config.json and special_tokens_map.json; a token that is more than a
            name is an `AddedToken`.
        added: the added tokens, by the id that the files give them.
        more_roles: special tokens under names of their own, such as image_token, by name.
    """

    values: dict[str, Any] = field(default_factory=dict)
    added: dict[int, "AddedToken"] = field(default_factory=dict)
    more_roles: dict[str, Any] = field(default_factory=dict)

    def flag(self, key: str, default: bool) -> bool:
        """A setting that is true or false.

        Raises:
            BrimfulError: it is anything else.
        """
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise BrimfulError(f"{key} of {CONFIG} is {json.dumps(value):.60}; write true or false")
        return value

    def truth(self, key: str, default: bool) -> bool:
        """The same of a class that takes whatever Python holds for true or false, such as null."""
        return bool(self.values.get(key, default))


def read_values(path: Path) -> dict[str, Any]:
    """A JSON object, with or without a byte order mark.

    Raises:
        BrimfulError: the file cannot be read or holds something else.
    """
    return read_object(path, marked=True)


def values_beside(folder: Path, name: str) -> dict[str, Any]:
    """The same of a file that a folder may lack; empty without it."""
    return read_values(folder / name) if (folder / name).is_file() else {}


def side_of(config: dict[str, Any], state: dict[str, Any] | None) -> Side:
    """The side on which texts are cut: of tokenizer_config.json, or else of tokenizer.json.

    Raises:
        BrimfulError: there is no such side.
    """
    usual = ((state or {}).get("truncation") or {}).get("direction", "right").lower()
    side: Side = config.get("truncation_side", usual)
    if side not in get_args(Side):
        raise BrimfulError(f"truncation_side of {CONFIG} is {json.dumps(side):.60}; write right or left")
    return side


def json_file(folder: Path, config: dict[str, Any]) -> Path | None:
    """The tokenizer.json of a folder, or the one that `fast_tokenizer_files` of its settings names."""
    name = "tokenizer.json"
    if isinstance(listed := config.get("fast_tokenizer_files"), list):
        versions = {found[1]: str(each) for each in listed if (found := _VERSIONED.search(str(each)))}
        for version in sorted(versions):
            if tuple(int(part) for part in re.findall(r"\d+", version)) <= (*_NEWEST, 0):
                name = versions[version]
            else:
                break
    return folder / name if (folder / name).is_file() else None


_VERSIONED = re.compile(r"tokenizer\.(.*)\.json")


def read_settings(folder: Path, config: dict[str, Any], state: dict[str, Any] | None) -> FolderSettings:
    """Merge the files.

    Args:
        config: of tokenizer_config.json.
        state: of tokenizer.json, if there is one.

    Raises:
        BrimfulError: a file cannot be read, or says of a token what no token is.
    """
    values = {key: value for key, value in config.items() if key not in ("tokenizer_class", "init_inputs")}
    if state is not None:
        values.pop("add_bos_token", None)
        values.pop("add_eos_token", None)
    if not values.get("extra_special_tokens") and "additional_special_tokens" in values:
        values["extra_special_tokens"] = values.pop("additional_special_tokens")
    more = {
        key: values.pop(key)
        for key in list(values)
        if key.endswith("_token") and key not in ROLES and isinstance(values[key], str)
    }
    if isinstance(values.get("extra_special_tokens"), dict):
        more |= values.pop("extra_special_tokens")
    if more:
        values["model_specific_special_tokens"] = more
    if "added_tokens_decoder" in values:
        where = folder / CONFIG
        decoder = values.pop("added_tokens_decoder")
        added = {_number(index, where): _token(each, where) for index, each in _items(decoder, where)}
        by_name = {token.content: token for token in added.values()}
    else:
        added, by_name = _older_files(folder, values, state)
    values = {key: _converted(value, folder / CONFIG) for key, value in values.items()}
    for role in ROLES:
        if values.get(role) is not None:
            given = values[role]
            if isinstance(given, dict):
                given = _token(given, folder / CONFIG)
            if not isinstance(given, str) and not hasattr(given, "content"):
                raise BrimfulError(f"{folder / CONFIG}: {role} is {given!r}; write the token itself")
            name = given if isinstance(given, str) else given.content
            values[role] = by_name.get(name, given)
    own = values.pop("model_specific_special_tokens", None) or {}
    late = {key: values.pop(key) for key in list(values) if _is_late_role(key, values[key])}
    return FolderSettings(values, added, {**late, **own})


def token_name(token: Any) -> str:
    """The name of a token, which may be an `AddedToken`; "None" where there is none, as in transformers."""
    return str(getattr(token, "content", token))


def _is_late_role(key: str, value: Any) -> bool:
    return (
        key.endswith("_token") and key not in ROLES and (isinstance(value, str) or hasattr(value, "content"))
    )


def _older_files(
    folder: Path, values: dict[str, Any], state: dict[str, Any] | None
) -> tuple[dict[int, "AddedToken"], dict[str, "AddedToken"]]:
    """The added tokens by id and by name, without an `added_tokens_decoder`; `values` gets what
    special_tokens_map.json says."""
    from tokenizers import AddedToken

    where = folder / MAP
    for key, value in values_beside(folder, MAP).items():
        if isinstance(value, dict) and key != "extra_special_tokens":
            value = _token({**value, "special": True}, where)
        elif key == "extra_special_tokens" and isinstance(value, list):
            existing = list(values.get("extra_special_tokens") or [])
            for each in value:
                token = _token({**each, "special": True}, where) if isinstance(each, dict) else each
                if token not in existing:
                    existing.append(token)
            value = existing
        elif isinstance(value, list):
            value = [_token({**e, "special": True}, where) if isinstance(e, dict) else e for e in value]
        values[key] = value
    if isinstance(values.get("extra_special_tokens"), dict):
        more = values.setdefault("model_specific_special_tokens", {})
        more.update(values.pop("extra_special_tokens"))
    added: dict[int, AddedToken] = {}
    by_name: dict[str, AddedToken] = {}
    extra = values.get("extra_special_tokens") or []
    special = {token_name(values[role]) for role in ROLES if values.get(role)} | {
        token_name(each) for each in extra
    }
    for name, index in values_beside(folder, ADDED).items():
        token = AddedToken(name, special=name in special, normalized=name not in special)
        added[_number(index, folder / ADDED)] = by_name[name] = token
    for each in [] if state is None else state.get("added_tokens") or []:
        token = _token(each, folder / "tokenizer.json")
        added[each["id"]] = by_name[token.content] = token
    return added, by_name


def _items(value: Any, where: Path) -> Any:
    if not isinstance(value, dict):
        raise BrimfulError(f"{where}: added_tokens_decoder is not an object of tokens by id")
    return value.items()


def _number(index: Any, where: Path) -> int:
    try:
        return int(index)
    except (TypeError, ValueError) as error:
        raise BrimfulError(f"{where}: {index!r} is not the id of an added token") from error


def _token(values: Any, where: Path) -> "AddedToken":
    from tokenizers import AddedToken

    try:
        parts = {key: values[key] for key in _PARTS if values.get(key) is not None}
        return AddedToken(parts.pop("content"), **parts)
    except (AttributeError, KeyError, TypeError) as error:
        raise BrimfulError(
            f"{where}: {values!r:.80} is not an added token; write an object with content, lstrip, rstrip,"
            " single_word, normalized, special"
        ) from error


def _converted(value: Any, where: Path) -> Any:
    """The value with an `AddedToken` for each object that says it is one."""
    if isinstance(value, dict):
        if value.get("__type") == "AddedToken":
            return _token(value, where)
        return {key: _converted(each, where) for key, each in value.items()}
    if isinstance(value, list):
        return [_converted(each, where) for each in value]
    return value
