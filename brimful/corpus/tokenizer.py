"""Train, load and save a Hugging Face `tokenizers` tokenizer; training gives the same one every time.

The trainer of `tokenizers` numbers the `##c` continuation characters in the order of a hash map, and
every later tie depends on those numbers: three runs gave three vocabularies. Here the alphabet and the
sorted continuation characters are given to it beforehand, and the model is rebuilt from its vocabulary.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from brimful.corpus.alphabet import Alphabet
from brimful.corpus.pieces import train_pieces
from brimful.errors import BrimfulError
from brimful.storage import atomic_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Han = Literal["characters", "pieces"]
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SMALLEST_VOCABULARY = 64
LONGEST_WORD = 100


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens; `unk` is None where the tokenizer can spell everything."""

    pad: int
    unk: int | None
    cls: int
    sep: int
    mask: int


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


def _bert(vocabulary: dict[str, int], lowercase: bool) -> "Tokenizer":
    """The BERT pipeline around a WordPiece vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise BrimfulError(f"the vocabulary lacks {', '.join(missing)}; a BERT vocabulary needs them all")
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _with_special_tokens(tokenizer)


def _with_special_tokens(tokenizer: "Tokenizer") -> "Tokenizer":
    """Mark BERT's special tokens, and put them around texts and pairs."""
    from tokenizers import processors

    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(sorted(SPECIAL_TOKENS, key=vocabulary.__getitem__))
    return tokenizer


def _batches(texts: Iterable[str], size: int = 1000) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def train(texts: Iterable[str], size: int, *, lowercase: bool = True, han: Han = "characters") -> "Tokenizer":
    """Train a WordPiece tokenizer of at most `size` entries; equal texts give an equal tokenizer.

    The texts are held in memory (normalised) while the trainer reads them: give a sample.

    Args:
        han: whether each Chinese character is a token, as BERT has it, or pieces of several may be.

    Raises:
        BrimfulError: `size` is too small, or the texts hold no character.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    if size < SMALLEST_VOCABULARY:
        raise BrimfulError(f"a vocabulary of {size} is too small; ask for at least {SMALLEST_VOCABULARY}")
    if han == "pieces":
        return _with_special_tokens(train_pieces(texts, size, lowercase=lowercase, special=SPECIAL_TOKENS))
    normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )
    counter = Alphabet(normalizer)
    sample = [text for batch in _batches(texts) for text in counter.read(batch)]
    alphabet, others = counter.choose((size - len(SPECIAL_TOKENS)) * 3 // 4)
    if not alphabet:
        raise BrimfulError("cannot train a tokenizer: the texts are empty")
    continuations = counter.continuations(alphabet)
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(size, len(SPECIAL_TOKENS) + len(alphabet) + len(continuations)),
        special_tokens=[*SPECIAL_TOKENS, *continuations],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    scratch = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    scratch.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    scratch.train_from_iterator(_batches(sample), trainer)
    vocabulary = scratch.get_vocab(with_added_tokens=False)
    for piece in chain.from_iterable([other, *counter.continuations([other])] for other in others):
        if len(vocabulary) >= size:
            break
        vocabulary[piece] = len(vocabulary)
    return _bert(vocabulary, lowercase)


def load(path: str | Path, *, lowercase: bool = True) -> "Tokenizer":
    """Load a tokenizer.json, a folder that holds one, or a BERT vocab.txt (or a folder with it).

    Padding and truncation that the file asks for are switched off.

    Args:
        path: file or folder.
        lowercase: for a vocab.txt without a tokenizer_config.json beside it that says `do_lower_case`.

    Raises:
        BrimfulError: there is no tokenizer, it cannot be read, or it lacks a token that an encoder needs.
    """
    path = Path(path)
    candidates = [path / "tokenizer.json", path / "vocab.txt"] if path.is_dir() else [path]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        looked = " and ".join(candidate.name for candidate in candidates)
        where = f"in {path}" if path.is_dir() else f"at {path.parent}"
        raise BrimfulError(f"no tokenizer {where} (looked for {looked}); give train:8000, a folder or a file")
    tokenizer = _load_vocabulary(file, lowercase) if file.suffix == ".txt" else _load_json(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special_ids(tokenizer)
    return tokenizer


def _load_json(file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        reason = " ".join(str(error).split())
        raise BrimfulError(f"{file} is not a tokenizer.json that `tokenizers` can read ({reason})") from error


def _load_vocabulary(file: Path, lowercase: bool) -> "Tokenizer":
    settings = file.with_name("tokenizer_config.json")
    try:
        tokens = file.read_text(encoding="utf-8").split("\n")
        if settings.is_file():
            lowercase = bool(json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case", lowercase))
    except (OSError, ValueError) as error:
        raise BrimfulError(f"cannot read the vocabulary {file}: {error}") from error
    if tokens[-1] == "":
        tokens.pop()
    return _bert({token.rstrip("\r"): number for number, token in enumerate(tokens)}, lowercase)


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
