"""The text of a track: fetched, cleaned, without duplicates, tokenized; and a held-out part with fixed masks.

    documents -> brimful prepare -> held-out sequences, which are masked once for all
                                 -> what all sides train on, in which no held-out document is left

The folder of a track has `training/`, a corpus that `brimful pretrain` reads; `plain/`, the same tokens as
arrays that numpy reads; `held_out.npz`; and the commit record `track.json`, with hashes of all of them.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench.common.corpora import Document, fetch, records, write_document
from bench.finetune.data import tables
from bench.speedrun.track import MASK_RATE, Track
from brimful.commands.prepare import prepare
from brimful.config import config_hash
from brimful.console import warn
from brimful.corpus.shards import MANIFEST, Corpus, write_manifest
from brimful.data.batch import IGNORED
from brimful.data.blocks import Blocks, PackingConfig
from brimful.data.masking import MaskingConfig
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.sequences import SPECIAL_TOKENS, SequencesConfig
from brimful.demonstration.reviews import same_text
from brimful.errors import BrimfulError
from brimful.randomness import derive_key, permutation
from brimful.storage import atomic_directory, commit, find_commit, read_commit, read_json
from brimful.text.special_ids import special_ids
from brimful.text.tokenizer import load

REPEATED = 32
"""A held-out sequence is not scored if this many of its tokens in a row occur in the training text, or
if it has fewer."""
PLAIN = ("tokens", "word_starts", "line_starts", "documents")
RECORD = "track.json"
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class HeldOut:
    """The sequences that are scored.

    Attributes:
        shown: int32 (T,), what a model sees, one sequence after the other.
        labels: int32 (T,), the token where one is predicted, else IGNORED.
        offsets: int64 (n + 1,), where sequences begin.
        hash: of the three.
    """

    shown: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray

    @property
    def hash(self) -> str:
        arrays = (self.shown, self.labels, self.offsets)
        return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()

    @property
    def tokens(self) -> np.ndarray:
        """int32 (T,): the text without masks."""
        return np.where(self.labels == IGNORED, self.shown, self.labels)


def documents(track: Track, data: Path) -> Iterator[Document]:
    """The raw documents of a track; the reviews of a labelled test table are not among them."""
    if track.quick:
        for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")):
            for number, text in enumerate(path.read_text(encoding="utf-8").split("\n## ")):
                yield Document(f"{path.name} {number}", len(text.encode()), "pages.jsonl", text)
        return
    chinese = track.language == "chinese"
    fetch(data, (*track.packages, *(["manpages-zh"] if chinese else [])), reviews=chinese)
    for page in track.pages:
        package, _, folder = page.partition("/")
        root = data / "packages" / package / "usr" / "share" / folder
        found = sorted(path for path in root.rglob("*.html") if path.is_file() and not path.is_symlink())
        if not found:
            raise BrimfulError(f"{root} has no pages: the package {package} has changed; mend track.py")
        for path in found:
            parts = path.relative_to(root).parts
            if not {"translations", "_modules"} & set(parts):  # other languages, and source code
                yield Document(str(path), path.stat().st_size, f"{package}-{'-'.join(parts)}", path)
    if chinese:
        tested = {same_text(text) for text in test_texts(data)}
        yield from (each for each in records(data / "packages") if same_text(str(each.content)) not in tested)


def test_texts(data: Path) -> list[str]:
    """The reviews on which Chinese encoders are tested."""
    import csv

    _, test = tables(data, "reviews", 2000)
    with open(test, encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def make_text(track: Track, data: Path, folder: Path) -> dict[str, Any]:
    """Make the folder of a track, or find it; returns its record.

    Args:
        data: where fetched text is kept.
    """
    wanted = config_hash([text_of(track), REPEATED, MASK_RATE])
    known = find_commit(folder / RECORD, inputs=wanted)
    if known is not None:
        return known
    raw, prepared = folder / "raw", folder / "prepared"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    for document in documents(track, data):
        write_document(document, raw)
    prepare(
        paths=(str(raw),),
        out=str(prepared),
        tokenizer=f"train:{track.vocabulary}",
        lowercase=True,
        validation_share=track.held_out_share,
        dedup={"near": True},
    )
    corpus = Corpus.open(prepared)
    training = keep_training(corpus, folder / "training")
    arrays = plain_arrays(training)
    with atomic_directory(folder / "plain") as temporary:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array)
    held_out, repeated = make_held_out(track, corpus, arrays, folder / "plans")
    np.savez(folder / "held_out.npz", **vars(held_out))
    files = [folder / "held_out.npz", folder / "training" / MANIFEST]
    files += [folder / "plain" / f"{name}.npy" for name in PLAIN]
    summary = read_json(prepared / MANIFEST)["summary"]
    record = commit(
        folder / RECORD,
        files,
        inputs=wanted,
        packages=[] if track.quick else versions(track, data),
        tokenizer=training.tokenizer_hash,
        training=training.fingerprint,
        held_out=held_out.hash,
        counts={
            "documents": training.documents,
            "tokens": training.tokens,
            "vocabulary": training.vocabulary_size,
            "characters": round(training.tokens / summary["tokens_per_character"]),
            "held_out_sequences": len(held_out.offsets) - 1,
            "held_out_tokens": len(held_out.shown),
            "predictions": int((held_out.labels != IGNORED).sum()),
            "repeated_sequences": repeated,
        },
    )
    if record["held_out"] != track.fixed and not track.quick:
        warn(
            f"the held-out part of {track.language} is {record['held_out'][:16]}, not {track.fixed[:16]}:"
            " its packages have changed, so compare results on it with no earlier ones"
        )
    for scratch in (raw, prepared, folder / "plans"):
        shutil.rmtree(scratch, ignore_errors=True)
    return record


def text_of(track: Track) -> dict[str, Any]:
    """The fields of a track that decide its text."""
    others = ("model", "seconds", "tasks", "fixed")
    return {name: value for name, value in asdict(track).items() if name not in others}


def versions(track: Track, data: Path) -> list[str]:
    """The packages with their versions, as their files are called."""
    names = [*track.packages, *(["manpages-zh"] if track.language == "chinese" else [])]
    return [max((data / "downloads").glob(f"{name}_*.deb")).name for name in names]


def keep_training(corpus: Corpus, folder: Path) -> Corpus:
    """A corpus without the held-out documents: its folder has no file in which they are."""
    manifest = read_json(corpus.directory / MANIFEST)
    own = ("format_version", "totals", "shards", "files", "crc32")
    facts = {name: value for name, value in manifest.items() if name not in own}
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "shards").mkdir(parents=True)
    shutil.copyfile(corpus.tokenizer_path, folder / "tokenizer.json")
    names = [shard.name for shard in corpus.shards if shard.split == "train"]
    for name in names:
        for file in (corpus.directory / "shards").glob(f"{name}.*"):
            os.link(file, folder / "shards" / file.name)
    write_manifest(folder, names, **facts)
    return Corpus.open(folder)


def plain_arrays(corpus: Corpus) -> dict[str, np.ndarray]:
    """The tokens of a corpus (uint16 or uint32), which of them start a word and a sentence (bool), and where
    documents begin, with the end of the last one (int64)."""
    shards = corpus.shards
    begins, at = [], 0
    for shard in shards:
        begins.append(np.asarray(shard.offsets[:-1]).astype(np.int64) + at)
        at += len(shard.tokens)
    return {
        "tokens": np.concatenate([shard.tokens for shard in shards]),
        "word_starts": np.concatenate([shard.word_starts(0, len(shard.tokens)) for shard in shards]),
        "line_starts": np.concatenate([shard.sentence_starts(0, len(shard.tokens)) for shard in shards]),
        "documents": np.concatenate([*begins, [at]]),
    }


def make_held_out(
    track: Track, corpus: Corpus, training: dict[str, np.ndarray], plans: Path
) -> tuple[HeldOut, int]:
    """The sequences that are scored, with their masks; and how many were left out as they occur in training.

    Raises:
        BrimfulError: there is no held-out document.
    """
    part = corpus.part("validation")
    if part is None:
        raise BrimfulError(f"{corpus.directory} has no held-out documents: the track needs more text")
    tokenizer = load(corpus.tokenizer_path)
    reader = SequenceReader(tokenizer, MaskingConfig(rate=MASK_RATE))
    packing = PackingConfig(max_length=track.max_length, capacity=track.max_length, max_sequences=1)
    blocks = Blocks(part, packing, SequencesConfig(), 0, plans)
    sequences = blocks.open(0, 0).sequences
    seen = grams(training["tokens"], REPEATED)
    shown, labels, lengths, repeated = [], [], [], 0
    room = track.held_out_tokens
    for index in permutation(len(sequences), derive_key("speedrun held-out")):
        length = int(sequences.length[index])
        if length > room:
            break
        if length < REPEATED + SPECIAL_TOKENS:
            continue
        one = BlockSlice(part, sequences, np.array([index]), derive_key("speedrun masks"))
        batch = reader.batch([one], max_length=track.max_length, rate=MASK_RATE)
        tokens, label = batch.tokens.numpy().copy(), np.full(length, IGNORED, np.int32)
        assert batch.mlm_positions is not None
        assert batch.mlm_labels is not None
        label[batch.mlm_positions.numpy()] = batch.mlm_labels.numpy()
        text = np.where(label == IGNORED, tokens, label)[1:-1]
        if occurs(text, seen):
            repeated += 1
            continue
        room -= length
        shown.append(tokens)
        labels.append(label)
        lengths.append(length)
    if not lengths:
        raise BrimfulError("every held-out sequence occurs in the text that is trained on: add other text")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return HeldOut(np.concatenate(shown).astype(np.int32), np.concatenate(labels), offsets), repeated


def grams(tokens: np.ndarray, size: int) -> np.ndarray:
    """uint64: hashes of all runs of `size` tokens, sorted."""
    n = len(tokens) - size + 1
    hashes = np.zeros(max(0, n), np.uint64)
    for i in range(size):
        hashes = hashes * _BASE + tokens[i : i + len(hashes)].astype(np.uint64) + np.uint64(1)
    hashes.sort()
    return hashes


def occurs(text: np.ndarray, seen: np.ndarray) -> bool:
    """Whether a run of REPEATED tokens of `text` is in the text of which `seen` has the grams."""
    own = grams(text, REPEATED)
    if not len(seen) or not len(own):
        return False
    places = np.minimum(np.searchsorted(seen, own), len(seen) - 1)
    return bool((seen[places] == own).any())


def load_held_out(folder: Path) -> HeldOut:
    """The held-out part of a track.

    Raises:
        BrimfulError: it is absent, or not the one that track.json names.
    """
    record = read_record(folder)
    with np.load(folder / "held_out.npz") as arrays:
        held_out = HeldOut(**{name: arrays[name] for name in ("shown", "labels", "offsets")})
    if held_out.hash != record["held_out"]:
        raise BrimfulError(
            f"{folder / 'held_out.npz'} is not what {RECORD} names: its texts or masks were changed; delete"
            f" {folder} to make it again"
        )
    return held_out


def read_record(folder: Path) -> dict[str, Any]:
    """What track.json says, with the files as it says."""
    return read_commit(folder / RECORD, remedy="run the step `text` again")


def load_plain(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of `plain/`, memory-mapped."""
    return {name: np.load(folder / "plain" / f"{name}.npy", mmap_mode="r") for name in PLAIN}


def tokenizer_of(folder: Path) -> tuple[Tokenizer, Any]:
    """The tokenizer of a track, and its special ids."""
    tokenizer = load(folder / "training" / "tokenizer.json")
    return tokenizer, special_ids(tokenizer)
