"""The text of bench/domain: documentation as general text, reviews as the domain, and words of the reviews.

General: the English and Chinese HTML of debian-handbook, the tutorial, how-tos and FAQ of python3.11-doc, and
manpages-zh (`corpora.py` fetches them); no review is among it. The reviews are cleaned of repeats and split
as in `brimful demo`: labels and text of the test side are seen by the final judging only.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.common.corpora import Document, fetch, pages, records, write_document
from brimful.corpus.words.segmenter import Segmenter
from brimful.demonstration.reviews import find_reviews, load_reviews, write_reviews

DOCUMENTATION = (
    "debian-handbook/html/en-US",
    "debian-handbook/html/zh-CN",
    "python3.11/html/faq",
    "python3.11/html/howto",
    "python3.11/html/tutorial",
)
SPLIT_SEED = 0  # the demo's own test reviews
DEV_SHARE = 0.2
DISCOUNT = 5
LEAST = 10  # occurrences of a collocation, and its score
_HAN = re.compile("[\u4e00-\u9fff]+")


def documentation(data: Path, quick: bool) -> Iterator[Document]:
    """The general text; in a quick run Brimful's own pages, which need no network."""
    if quick:
        for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")):
            text = path.read_text(encoding="utf-8")
            yield Document(path.name, len(text.encode()), "documentation.jsonl", text)
        return
    fetch(data)
    yield from pages(data / "packages", DOCUMENTATION)
    yield from (record for record in records(data / "packages") if record.file == "manpages.jsonl")


def collocations(texts: Iterable[str]) -> list[str]:
    """Pairs of neighbouring Chinese words that come together more often than by chance, most frequent first.

    Score: (count(ab) - DISCOUNT) * words / (count(a) * count(b)), at least LEAST (Mikolov et al., 2013,
    section 4). The words are those of Brimful's segmenter (jieba's dictionary), so that the result is what a
    lexicon of the domain can add to them.
    """
    segmenter = Segmenter()
    words: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for text in texts:
        spans = segmenter.spans(text).tolist()
        words.update(text[begin:end] for begin, end in spans)
        for (begin, middle), (next_begin, end) in pairwise(spans):
            pair = text[begin:middle], text[next_begin:end]
            if middle == next_begin and all(map(_HAN.fullmatch, pair)):
                pairs[pair] += 1
    total = words.total()
    return [
        first + second
        for (first, second), count in pairs.most_common()
        if count >= LEAST and (count - DISCOUNT) * total >= LEAST * words[first] * words[second]
    ]


def write_text(data: Path, folder: Path, quick: bool, limit: int | None) -> dict[str, int]:
    """general/, training.txt, train.tsv and test.tsv, choice/ (train.tsv split in two), lexicon.txt.

    Args:
        limit: reviews read of each label.

    Returns:
        how many there are of what.
    """
    general = folder / "general"
    general.mkdir(parents=True)
    documents = 0
    for document in documentation(data, quick):
        write_document(document, general)
        documents += 1
    reviews = load_reviews(find_reviews(), SPLIT_SEED, limit)
    write_reviews(reviews, folder)
    cut = round(DEV_SHARE * len(reviews.labelled))
    write_reviews(
        replace(reviews, labelled=reviews.labelled[cut:], test=reviews.labelled[:cut]), folder / "choice"
    )
    words = collocations([text for text, _ in reviews.labelled] + reviews.unlabelled)
    (folder / "lexicon.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return reviews.facts | {"general_documents": documents, "lexicon": len(words)}
