"""Schemes of tags: what the names of a set mean together."""

import pytest

from brimful.base.errors import BrimfulError
from brimful.tables.schemes import Tag, read_tags, spans_of


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        ("O PER LOC", "O I:PER I:LOC"),
        ("O X", "O I:X"),
        ("B M E S", "B:_ I:_ E:_ S:_"),
        ("O B I", "O B:_ I:_"),
        ("O S", "O I:S"),
        ("O B-PER I-PER X [CLS] [SEP]", "O B:PER I:PER X: : :"),
        ("O B-PER I-PER MISC", "O B:PER I:PER I:MISC"),
        ("B-PER I-PER null X", "B:PER I:PER O X:"),
        ("<O> B-PER I-PER [PAD]", "O B:PER I:PER :"),
        ("B-PER I-PER MISC ORG", "B:PER I:PER I:MISC I:ORG"),
        ("O B-cell T-cell", "O I:B-cell I:T-cell"),
        ("O E-MAIL PHONE", "O I:E-MAIL I:PHONE"),
        ("E-PER E-LOC O", "E:PER E:LOC O"),
        ("OTHER B-A I-A", "O B:A I:A"),
        ("E-B E-I O", "B:E I:E O"),
        ("I-PER B-LOC I-LOC O", "I:PER B:LOC I:LOC O"),
    ],
)
def test_sets_by_hand(names: str, meant: str):
    wanted = [Tag(*(tag.split(":") if ":" in tag else (tag, ""))) for tag in meant.split(" ")]
    assert list(read_tags(names.split()).values()) == wanted


@pytest.mark.parametrize("names", ["LABEL_0 LABEL_1", "NOUN VERB ADJ", "O", "O [CLS]", ""])
def test_sets_that_describe_no_spans_are_refused(names: str):
    with pytest.raises(BrimfulError, match=r"every token would be in a span|no label for spans"):
        read_tags(names.split())


def test_a_continued_word_stays_in_its_span():
    known = read_tags(["O", "B-P", "I-P", "S-P", "X"])
    tags = [known[tag] for tag in ["X", "B-P", "X", "I-P", "X", "O", "X", "S-P", "X", "X", "I-P"]]
    spans = spans_of(tags, [(i, i + 1) for i in range(len(tags))])
    assert [span[:2] for span in spans] == [(1, 5), (7, 10), (10, 11)]
