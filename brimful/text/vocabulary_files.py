"""Tokenizers from older files than tokenizer.json: BERT's vocab.txt, RoBERTa's vocab.json and merges.txt."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.errors import BrimfulError
from brimful.storage import read_object
from brimful.text.tokenizer_pipelines import bert

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROBERTA = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")


def load_wordpiece(file: Path, lowercase: bool) -> "Tokenizer":
    """BERT's tokenizer from a vocab.txt: the token of line n has id n, counted from 0.

    Empty and duplicate lines keep their ids, under names that no text has. Of duplicates the last one counts,
    as in `transformers`.

    Args:
        lowercase: where no tokenizer_config.json beside the file says `do_lower_case`.

    Raises:
        BrimfulError: the file cannot be read, or lacks a special token.
    """
    from tokenizers import normalizers

    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BrimfulError(f"cannot read the vocabulary {file}: {error}") from error
    lines = [line.rstrip("\r") for line in text.rstrip("\r\n").split("\n")]
    last = {token: number for number, token in enumerate(lines)}
    vocabulary = {
        token if token.strip() and last[token] == number else f"[line {number}]": number
        for number, token in enumerate(lines)
    }
    settings = _settings(file, ("Bert", "Electra"))
    lowercase = bool(settings.get("do_lower_case", lowercase))
    tokenizer = bert(vocabulary, lowercase)
    accents, han = settings.get("strip_accents"), settings.get("tokenize_chinese_chars", True)
    if accents is not None or not han:
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=bool(han), strip_accents=accents, lowercase=lowercase
        )
    return tokenizer


def load_byte_level(file: Path) -> "Tokenizer":
    """RoBERTa's tokenizer from a vocab.json and the merges.txt beside it.

    Raises:
        BrimfulError: a file is missing or cannot be read, or the vocabulary has other special tokens.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    merges = file.with_name("merges.txt")
    if not merges.is_file():
        raise BrimfulError(f"{file} needs its merges.txt beside it")
    try:
        model = models.BPE.from_file(str(file), str(merges))
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        raise BrimfulError(f"cannot read the vocabulary {file} and {merges.name}: {error}") from error
    tokenizer = Tokenizer(model)
    vocabulary = tokenizer.get_vocab()
    if missing := [token for token in _ROBERTA if token not in vocabulary]:
        raise BrimfulError(f"{file} lacks {', '.join(missing)}; an encoder's vocabulary needs them all")
    prefix = bool(_settings(file, ("Roberta",)).get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]), add_prefix_space=prefix
    )
    # The mask takes in the space before it, as RoBERTa was trained.
    tokenizer.add_special_tokens([*_ROBERTA[:-1], AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def _settings(file: Path, families: tuple[str, ...]) -> dict[str, Any]:
    """The tokenizer_config.json beside `file`, empty without one.

    Raises:
        BrimfulError: the vocabulary belongs to a tokenizer of another kind: its pieces would be read wrongly.
    """
    path = file.with_name("tokenizer_config.json")
    settings = read_object(path) if path.is_file() else {}
    kind = settings.get("tokenizer_class")
    general = (*(f"{family}Tokenizer" for family in families), "PreTrainedTokenizer")
    if kind is not None and str(kind).removesuffix("Fast") not in general:
        raise BrimfulError(
            f"{path} says {kind}: {file.name} is not read as {' or '.join(general[:-1])} would read it; "
            f"make a tokenizer.json: AutoTokenizer.from_pretrained({str(file.parent)!r}).save_pretrained(...)"
        )
    return settings
