"""The track and its text: documents without duplicates, a held-out part with fixed masks, and its score.

The folder of a track has `prepared/`, a corpus whose part `train` both sides read, and `held_out.npz`.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from bench.common.corpora import Document, fetch, write_document
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.base.storage import atomic_file
from brimful.base.types import IGNORED
from brimful.commands.prepare import prepare
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import special_ids
from brimful.corpus.text.tokenizer import load
from brimful.data.blocks import Blocks
from brimful.data.config import SPECIAL_TOKENS, MaskingConfig, PackingConfig, SequencesConfig
from brimful.data.reader import BlockSlice, SequenceReader

MASK_RATE = 0.15
TARGETS = ("early", "middle", "late")
REPEATED = 32  # tokens in a row that also occur in the training text: such a sequence is not scored
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Track:
    """What both sides share: folders of HTML below usr/share of a Debian package, which comes first (without
    any, toy sizes, on Brimful's own pages), the hash of the held-out part, the rival's `seconds`."""

    pages: tuple[str, ...]
    fixed: str
    vocabulary: int = 16384
    model: str = "mini"
    max_length: int = 128
    held_out_share: float = 0.02
    held_out_tokens: int = 100_000
    seconds: tuple[float, ...] = (600.0, 1200.0, 2400.0)

    @property
    def name(self) -> str:
        """Of its folders and records."""
        return f"english-{self.model}" + ("" if self.pages else "-quick")


TOY = Track((), "", 1000, "tiny", 64, 0.2, 2000, (7.0, 8.0, 10.0))
ENGLISH = Track(
    tuple(Path(__file__).with_name("pages.txt").read_text(encoding="utf-8").split()),
    "08b8940480c6ae152f42cb97afe80deb676c3801431def434c11c640d0aea7c2",
)


@dataclass(frozen=True)
class HeldOut:
    """The sequences that are scored: what a model sees, int32 (T,); the token where one is predicted, else
    IGNORED, int32 (T,); where sequences begin, int64 (n + 1,)."""

    shown: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray

    @property
    def hash(self) -> str:
        return hashlib.sha256(b"".join(each.tobytes() for each in vars(self).values())).hexdigest()


def documents(track: Track, data: Path) -> Iterator[Document]:
    """The raw documents of a track."""
    if not track.pages:
        for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")):
            for number, text in enumerate(path.read_text(encoding="utf-8").split("\n## ")):
                yield Document(f"{path.name} {number}", len(text.encode()), "pages.jsonl", text)
        return
    fetch(data, tuple(dict.fromkeys(page.partition("/")[0] for page in track.pages)), reviews=False)
    for page in track.pages:
        package, _, folder = page.partition("/")
        root = data / "packages" / package / "usr" / "share" / folder
        found = sorted(path for path in root.rglob("*.html") if path.is_file() and not path.is_symlink())
        if not found:
            raise BrimfulError(f"{root} has no pages: the package {package} has changed; mend pages.txt")
        for path in found:
            parts = path.relative_to(root).parts
            if not {"translations", "_modules"} & set(parts):  # other languages, code
                yield Document(str(path), path.stat().st_size, f"{package}-{'-'.join(parts)}", path)


def make_text(track: Track, data: Path, folder: Path) -> HeldOut:
    """Make the folder of a track, or find it; `data` keeps fetched text."""
    if not (folder / "held_out.npz").is_file():
        raw, prepared = folder / "raw", folder / "prepared"
        shutil.rmtree(raw, ignore_errors=True)
        raw.mkdir(parents=True)
        for document in documents(track, data):
            write_document(document, raw)
        values = {"tokenizer": f"train:{track.vocabulary}", "lowercase": True, "dedup": {"near": True}}
        share = track.held_out_share
        prepare(paths=(str(raw),), out=str(prepared), validation_share=share, **values)
        held_out = make_held_out(track, Corpus.open(prepared), folder / "plans")
        with atomic_file(folder / "held_out.npz") as temporary, open(temporary, "wb") as file:
            np.savez(file, **vars(held_out))
    with np.load(folder / "held_out.npz") as arrays:
        return HeldOut(**{name: arrays[name] for name in ("shown", "labels", "offsets")})


def make_held_out(track: Track, corpus: Corpus, plans: Path) -> HeldOut:
    """The sequences that are scored, with their masks; those that occur in the training text are left out."""
    part = corpus.part("validation")
    assert part is not None
    reader = SequenceReader(load(corpus.tokenizer_path), MaskingConfig(rate=MASK_RATE))
    packing = PackingConfig(max_length=track.max_length, capacity=track.max_length, max_sequences=1)
    sequences = Blocks(part, packing, SequencesConfig(), 0, plans).open(0, 0).sequences
    seen = grams(
        np.concatenate([shard.tokens for shard in corpus.shards if shard.split == "train"]), REPEATED
    )
    shown, labels, lengths, room = [], [], [], track.held_out_tokens
    for index in permutation(len(sequences), derive_key("speedrun held-out")):
        length = int(sequences.length[index])
        if length > room:
            break
        if length < REPEATED + SPECIAL_TOKENS:
            continue
        one = BlockSlice(part, sequences, np.array([index]), derive_key("speedrun masks"))
        batch: Any = reader.batch([one], max_length=track.max_length, rate=MASK_RATE)
        tokens, label = batch.tokens.numpy().copy(), np.full(length, IGNORED, np.int32)
        label[batch.mlm_positions.numpy()] = batch.mlm_labels.numpy()
        if occurs(np.where(label == IGNORED, tokens, label)[1:-1], seen):
            continue
        room -= length
        shown.append(tokens)
        labels.append(label)
        lengths.append(length)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return HeldOut(np.concatenate(shown).astype(np.int32), np.concatenate(labels), offsets)


def grams(tokens: np.ndarray, size: int) -> np.ndarray:
    """uint64: hashes of all runs of `size` tokens, sorted."""
    hashes = np.zeros(max(0, len(tokens) - size + 1), np.uint64)
    for i in range(size):
        hashes = hashes * _BASE + tokens[i : i + len(hashes)].astype(np.uint64) + np.uint64(1)
    hashes.sort()
    return hashes


def occurs(text: np.ndarray, seen: np.ndarray) -> bool:
    """Whether a run of REPEATED tokens of `text` is in the text of which `seen` has the grams."""
    own = grams(text, REPEATED)
    places = np.minimum(np.searchsorted(seen, own), len(seen) - 1)
    return bool(len(seen)) and bool((seen[places] == own).any())


def tokenizer_of(folder: Path) -> tuple[Tokenizer, Any]:
    """The tokenizer of a track, and its special ids."""
    tokenizer = load(folder / "prepared" / "tokenizer.json")
    return tokenizer, special_ids(tokenizer)


@torch.inference_mode()
def score(folder: Path, held_out: HeldOut, pad: int) -> dict[str, float]:
    """The mean `loss` over predictions of a Hugging Face folder, in float32, and its parameters. The model is
    loaded without remote code, so what cannot be exported has no score."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForMaskedLM.from_pretrained(
        folder, attn_implementation="sdpa", trust_remote_code=False, dtype=torch.float32
    ).eval()
    lengths = np.diff(held_out.offsets)
    order = np.argsort(lengths, kind="stable")
    total, predictions = 0.0, 0
    for begin in range(0, len(order), 16):
        chosen = order[begin : begin + 16]
        ids = torch.full((len(chosen), int(lengths[chosen].max())), pad)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
        for row, index in enumerate(chosen):
            place, length = slice(*held_out.offsets[index : index + 2]), lengths[index]
            ids[row, :length] = torch.from_numpy(held_out.shown[place])
            labels[row, :length] = torch.from_numpy(held_out.labels[place])
            mask[row, :length] = 1
        logits = model(input_ids=ids, attention_mask=mask).logits
        wanted = labels != IGNORED
        losses = torch.nn.functional.cross_entropy(logits[wanted].double(), labels[wanted], reduction="sum")
        total, predictions = total + float(losses), predictions + int(wanted.sum())
    loss = total / predictions
    if not np.isfinite(loss):
        raise BrimfulError(f"{folder}: the held-out loss is {loss}; the training diverged")
    return {"loss": loss, "parameters": sum(parameter.numel() for parameter in model.parameters())}
