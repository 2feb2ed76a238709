"""The classic preparation of BERT's data, as a peer for bench/prepare: one process, pure Python.

    html.parser -> sentences -> WordPiece -> [Chinese: jieba, word marks] -> 5 x (pack to 512, mask, write)

It is a plain version of what Google's create_pretraining_data and its Chinese descendants do, around
published parts: BeautifulSoup, jieba, and the tokenizer of pytorch-pretrained-bert 0.6.2, unmodified.
Wherever there was a choice it does less than they do: no next-sentence pairs, no shuffle over all records, no
TFRecord; records are written as they are made, not held in memory; jieba sees only sentences with Chinese,
and those once, where the scripts segment every copy anew.

An improvement is one that a practitioner's summary of a financial BERT reports, switched on by itself:

    segmenter   jieba in compiled code (rjieba)
    tokenizer   WordPiece in compiled code (tokenizers)
    processes   two processes mask the copies, the collector makes the records
    records     two processes mask the copies and make the records, the collector writes them
    lines       sentences pass through a file, a line each, as scripts for BERT read them (slower)
    json        they pass through a file as JSON lists, which the summary puts in place of lines

It runs in a virtual environment of its own, so it imports nothing of Brimful:

    python bench/prepare/classic.py FOLDER VOCABULARY OUT LANGUAGE [IMPROVEMENT]
"""

import json
import random
import re
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO

REQUIREMENTS = ["beautifulsoup4==4.15.0", "jieba==0.42.1", "numpy", "boto3", "requests", "tqdm"]
REQUIREMENTS += ["rjieba==0.2.2", "tokenizers"]
WITHOUT_DEPENDENCIES = ["pytorch-pretrained-bert==0.6.2"]  # it asks for torch, which its tokenizer never uses

IMPROVEMENTS = ("segmenter", "tokenizer", "processes", "records", "lines", "json")
PROCESSES = 2
LENGTH, DUPLICATES, MASKED, PREDICTIONS, SHORT = 512, 5, 0.15, 77, 0.1
LONGEST_WORD = 3  # of the characters that a mark may join, as in the published scripts

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")


def load_tokenizer(vocabulary: str) -> Any:
    """BertTokenizer. Importing its package would import torch: so the package's __init__ is passed over."""
    spec = find_spec("pytorch_pretrained_bert")
    assert spec is not None
    package = types.ModuleType(spec.name)
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules[spec.name] = package
    from pytorch_pretrained_bert.tokenization import BertTokenizer

    return BertTokenizer(vocabulary, do_lower_case=True, max_len=int(1e12))


class CompiledTokenizer:
    """The WordPiece of `tokenizers`, with the two attributes of BertTokenizer that are used here."""

    def __init__(self, vocabulary: str) -> None:
        from tokenizers import BertWordPieceTokenizer

        self._tokenizer = BertWordPieceTokenizer(vocabulary, lowercase=True)
        entries = Path(vocabulary).read_text(encoding="utf-8").splitlines()
        self.vocab = {entry: number for number, entry in enumerate(entries)}

    def tokenize(self, text: str) -> list[str]:
        return self._tokenizer.encode(text, add_special_tokens=False).tokens


def load_segmenter(improvement: str) -> Any:
    """The function that cuts a sentence into words, with its dictionary read."""
    if improvement == "segmenter":
        import rjieba

        rjieba.cut("")
        return rjieba.cut
    import jieba

    jieba.setLogLevel(60)
    jieba.initialize()
    return jieba.lcut


class Clock:
    """CPU seconds and input bytes by stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def stage(self, name: str, size: int = 0) -> Iterator[None]:
        """Count the CPU time of the block, which works on `size` bytes."""
        started = time.process_time()
        yield
        self.seconds[name] += time.process_time() - started
        self.bytes[name] += size


def read_texts(folder: Path, clock: Clock) -> Iterator[str]:
    """The text of each page and of each record."""
    from bs4 import BeautifulSoup

    for path in sorted(folder.iterdir()):
        if path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as file:
                for line in file:
                    yield json.loads(line)["text"]
            continue
        markup = path.read_bytes()
        with clock.stage("html", len(markup)):
            soup = BeautifulSoup(markup.decode("utf-8", "replace"), "html.parser")
            for tag in soup(["script", "style"]):
                tag.decompose()
            text = soup.get_text()
        yield text


def split_sentences(text: str) -> list[str]:
    """Sentences of each paragraph; a paragraph ends at a blank line."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [s for paragraph in paragraphs for s in _SENTENCE_END.split(paragraph) if s.strip()]


def mark_words(tokens: list[str], words: set[str]) -> list[str]:
    """Prefix ## to each Chinese character that continues a word, so that masking sees whole words.

    At each position the longest run of up to three characters that spells one of the sentence's words is
    taken, wherever it stands: that is how the published scripts find words.
    """
    marked = []
    position = 0
    while position < len(tokens):
        size = 1
        if _HAN.match(tokens[position]):
            for longer in range(LONGEST_WORD, 1, -1):
                if "".join(tokens[position : position + longer]) in words:
                    size = min(longer, len(tokens) - position)
                    break
        marked.append(tokens[position])
        marked += ["##" + token for token in tokens[position + 1 : position + size]]
        position += size
    return marked


def pass_through_file(documents: list[list[str]], file: Path, form: str) -> list[list[str]]:
    """Write documents of sentences to a file and read them: as JSON, or as lines with blank ones between."""
    if form == "json":
        file.write_text(json.dumps(documents, ensure_ascii=False), encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))
    blocks = ("".join(sentence + "\n" for sentence in document) for document in documents)
    file.write_text("\n".join(blocks), encoding="utf-8")
    documents = [[]]
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            sentence = line.strip()
            if sentence:
                documents[-1].append(sentence)
            else:
                documents.append([])
    return documents


def tokenize_documents(
    documents_of_sentences: list[list[str]], tokenizer: Any, segment: Any, clock: Clock
) -> list[list[tuple[str, ...]]]:
    """Every document's sentences as tokens, all in memory, as the published scripts hold them.

    In tuples, not lists: the garbage collector passes over tuples of strings. With lists it went through all
    tokens again and again, which slowed the HTML parser by a third.
    """
    documents = []
    for sentences in documents_of_sentences:
        size = sum(len(sentence.encode()) for sentence in sentences)
        with clock.stage("tokenize", size):
            document = [tokenizer.tokenize(sentence) for sentence in sentences]
        if segment:
            for number, sentence in enumerate(sentences):
                if _HAN.search(sentence):
                    with clock.stage("segment", len(sentence.encode())):
                        words = set(segment(sentence))
                    with clock.stage("mark words"):
                        document[number] = mark_words(document[number], words)
        filled = [tuple(tokens) for tokens in document if tokens]
        if filled:
            documents.append(filled)
    return documents


def pack(document: list[tuple[str, ...]], rng: random.Random) -> Iterator[list[str]]:
    """Join sentences until the length is reached; now and then a shorter length is aimed at."""
    most = LENGTH - 2
    target = most if rng.random() >= SHORT else rng.randint(2, most)
    sequence: list[str] = []
    for number, tokens in enumerate(document):
        sequence += tokens
        if len(sequence) >= target or number == len(document) - 1:
            yield ["[CLS]", *sequence[:most], "[SEP]"]
            sequence = []
            target = most if rng.random() >= SHORT else rng.randint(2, most)


def mask(
    tokens: list[str], vocabulary: list[str], rng: random.Random
) -> tuple[list[str], list[int], list[str]]:
    """Mask 15 % of the tokens, whole words at a time: 80 % [MASK], 10 % a random token, 10 % kept.

    Returns:
        the tokens that the model sees, the chosen positions in order, what stood there.
    """
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if words and token.startswith("##"):
            words[-1].append(position)
        else:
            words.append([position])
    rng.shuffle(words)
    wanted = min(PREDICTIONS, max(1, round(len(tokens) * MASKED)))
    seen = list(tokens)
    chosen: list[int] = []
    for word in words:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(word) > wanted:
            continue
        for position in word:
            draw = rng.random()
            if draw < 0.8:
                seen[position] = "[MASK]"
            elif draw < 0.9:
                seen[position] = vocabulary[rng.randint(0, len(vocabulary) - 1)]
            chosen.append(position)
    chosen.sort()
    return seen, chosen, [tokens[position] for position in chosen]


class Records:
    """Fixed-length, padded records of integers."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        import numpy as np

        fields = [("input_ids", "<i4", LENGTH), ("input_mask", "u1", LENGTH), ("segment_ids", "u1", LENGTH)]
        fields += [("positions", "<i4", PREDICTIONS), ("labels", "<i4", PREDICTIONS)]
        self._record = np.zeros((), [*fields, ("weights", "<f4", PREDICTIONS)])
        self._vocabulary, self.size = vocabulary, self._record.nbytes

    def _ids(self, tokens: list[str]) -> list[int]:
        """Ids; the ## that marks a Chinese character belongs to no entry of the vocabulary."""
        ids = self._vocabulary
        return [ids[token[2:] if token[:2] == "##" and _HAN.match(token, 2) else token] for token in tokens]

    def make(self, tokens: list[str], positions: list[int], labels: list[str]) -> bytes:
        """Return one record."""
        record = self._record
        record.fill(0)
        record["input_ids"][: len(tokens)] = self._ids(tokens)
        record["input_mask"][: len(tokens)] = 1
        record["positions"][: len(positions)] = positions
        record["labels"][: len(positions)] = self._ids(labels)
        record["weights"][: len(positions)] = 1
        return record.tobytes()


class Copies:
    """Masked copies of the same documents."""

    def __init__(
        self, documents: list[list[tuple[str, ...]]], vocabulary: dict[str, int], clock: Clock
    ) -> None:
        self.documents, self.clock = documents, clock
        self.entries, self.records = list(vocabulary), Records(vocabulary)

    def mask_all(self, number: int) -> Iterator[list[Any]]:
        """Mask one copy, a document at a time."""
        rng = random.Random(number)
        for document in self.documents:
            with self.clock.stage("pack and mask"):
                masked = [mask(tokens, self.entries, rng) for tokens in pack(document, rng)]
            yield masked

    def make_all(self, masked: list[Any]) -> list[bytes]:
        with self.clock.stage("write"):
            return [self.records.make(*one) for one in masked]

    def write(self, file: BinaryIO) -> None:
        """Mask and write all copies in this process."""
        for number in range(DUPLICATES):
            for masked in self.mask_all(number):
                file.writelines(self.make_all(masked))

    def write_from_processes(self, file: BinaryIO, *, as_records: bool) -> None:
        """Mask all copies in processes that share the documents' pages, and write what they send."""
        global _copies
        _copies = self
        make = send_records if as_records else send_masked
        with get_context("fork").Pool(PROCESSES) as pool:
            for sent in pool.imap(make, range(DUPLICATES)):
                file.writelines(sent if as_records else self.make_all(sent))


_copies: Copies


def send_masked(number: int) -> list[Any]:
    return [one for masked in _copies.mask_all(number) for one in masked]


def send_records(number: int) -> list[bytes]:
    return [one for masked in _copies.mask_all(number) for one in _copies.make_all(masked)]


def main() -> None:
    """Run the pipeline and print what it took as one JSON object."""
    folder, vocabulary, out, language, *improvements = sys.argv[1:]
    improvement = improvements[0] if improvements else ""
    clock, rng = Clock(), random.Random(0)
    tokenizer = CompiledTokenizer(vocabulary) if improvement == "tokenizer" else load_tokenizer(vocabulary)
    segment = load_segmenter(improvement) if language == "chinese" else None
    start_up = time.process_time()
    sentences = []
    for text in read_texts(Path(folder), clock):
        with clock.stage("sentences"):
            sentences.append(split_sentences(text))
    if improvement in ("lines", "json"):
        with clock.stage("file"):
            sentences = pass_through_file(sentences, Path(f"{out}.sentences"), improvement)
    documents = tokenize_documents(sentences, tokenizer, segment, clock)
    rng.shuffle(documents)
    copies = Copies(documents, tokenizer.vocab, clock)
    with open(out, "wb") as file:
        if improvement in ("processes", "records"):
            copies.write_from_processes(file, as_records=improvement == "records")
        else:
            copies.write(file)
    cpu = time.process_time()
    clock.seconds["start-up"] = start_up
    clock.seconds["other"] = cpu - sum(clock.seconds.values())
    facts = {
        "documents": len(documents),
        "tokens": sum(len(tokens) for document in documents for tokens in document),
        "records": Path(out).stat().st_size // copies.records.size,
        "bytes_written": Path(out).stat().st_size,
        "cpu": cpu,
        "stages": dict(clock.seconds),
        "mb_per_second": {
            name: size / 1e6 / clock.seconds[name] for name, size in clock.bytes.items() if size
        },
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
