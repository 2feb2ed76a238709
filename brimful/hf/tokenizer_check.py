"""Checks that a written folder has the ids of the folder that it was made from, by AutoTokenizer.

The texts are of many scripts and kinds, with the tokens that the tokenizer adds and with the model's markers.
Markers in a text are plain text here (`text.markers`), and AutoTokenizer makes tokens of them where a folder
does not say otherwise; so texts that spell a marker are compared only with the written folder.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.auto_tokenizer import open_auto_tokenizer
from brimful.corpus.text.folder_files import find_vocabulary_file, lowers_text
from brimful.corpus.text.special_ids import marker_names, truncation_side
from brimful.corpus.text.tokenizer import read

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXTS = (
    "",
    " ",
    "The quick brown fox jumps over 13 lazy dogs.",
    "PARIS Paris paris pARIS",
    "It's John's (or isn't it?) -- 3.14 % of $1,000,000; e-mail: a.b@c.de",
    "Élève naïve façade Ångström Zürich Straße İstanbul",
    "e\u0301le\u0300ve a\u0308 o\u0302",
    "ΑΒΓ άλφα ΌΔΟΣ σοφός",
    "Москва, ёлка и й",
    "今天天气很好，我们去公园。",
    "東京タワー ガギグ ｶﾞｷﾞ ～",
    "한국어 문장입니다. 각",
    "हिन्दी में क्या हाल है",
    "ภาษาไทย ไม่มีช่องว่าง",
    "العربية مَرْحَبًا ‏ ـ",
    "עברית שָׁלוֹם",
    "தமிழ் മലയാളം తెలుగు",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁne ½ ² ™ ℃ Ⅳ ㎏",
    "👍🏽 👨‍👩‍👧 🇩🇪 ❤️ 😀😀",
    "tab\tline\nreturn\r\nform\x0cvertical\x0b",
    "no-break\u00a0narrow\u202fideographic\u3000zero\u200bwidth\u2028line\u2029paragraph\x85next",
    "control\x00\x01\x07\x1f\x7f\x80 \ufeffmark \ufffd \u00ad soft",
    "  two  spaces   three    four ",
    "\n\n\n",
    "a" * 120 + " " + "ab" * 60,
    "中" * 70,
    "https://example.org/path?query=1&b=[2]#x_y",
    "def f(x): return {'a': [1, 2], \"b\": x ** 2}  # <tag attr='v'/>",
    "snake_case camelCase SCREAMING_CASE kebab-case",
    "``quoted'' “curly” ‚low‘ «guillemets» — – - …",
    "0 1 12 123 1234 ١٢٣ १२३ 〇一二三",
    "▁meta Ġbyte ##piece @@ </w>",
    "The lazy dog sleeps in the sun. " * 40,
)
"""Texts that spell no marker."""
_AROUND = ("{}", "a {} b", "x{}y", "{}{}", " {}, 中{}国")
_ADDED_TOKENS = 24
"""The largest number of the tokenizer's own added tokens that texts spell, about."""


def sample_texts(tokenizer: "Tokenizer") -> tuple[list[str], list[str]]:
    """Return texts without markers, some of which spell added tokens, and texts that spell markers."""
    names = marker_names(tokenizer)
    added = []
    for _, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        if token.content not in names:
            added.append(token.content)
    step = max(1, len(added) // _ADDED_TOKENS)  # some tokenizers add thousands
    plain, spelled = [], []
    for text in [*TEXTS, *_spell(added[::step])]:
        if any(name.lower() in text.lower() for name in names):
            spelled.append(text)
        else:
            plain.append(text)
    return plain, [*spelled, *_spell(sorted(names))]


def _spell(names: Iterable[str]) -> list[str]:
    """Return texts with each name, in three cases."""
    texts = []
    for name in names:
        for spelling in dict.fromkeys((name, name.lower(), name.upper())):
            texts += [around.replace("{}", spelling) for around in _AROUND]
    return texts


def check_ids(source: Path, folder: Path, max_length: int, *, whole: bool = True) -> None:
    """Compare ids with the ids of `transformers`, which must be installed.

    Args:
        source: the folder that was exported.
        folder: the folder that was written.
        max_length: tokens at which its texts are cut.
        whole: whether the written folder has all pieces of the source; if not, only its own ids are compared.

    Raises:
        BrimfulError: ids differ; the message has an example.
    """
    tokenizer = read(folder)
    plain, spelled = sample_texts(tokenizer)
    _compare(plain + spelled, tokenizer, folder, folder.name)
    tokenizer.enable_truncation(max_length, direction=truncation_side(tokenizer))
    numbers = " ".join(map(str, range(max_length)))
    _compare([numbers], tokenizer, folder, f"{folder.name}, which cuts it")
    tokenizer.no_truncation()
    if not whole or find_vocabulary_file(source) is None:
        return
    try:
        _compare(plain, tokenizer, source, str(source), lowers=lowers_text(source))
    except BrimfulError:
        raise
    except Exception as error:  # files of a folder make transformers raise errors of many types
        reason = " ".join(str(error).split())
        warn(f"{source}: transformers cannot use the tokenizer, so its ids were not compared ({reason:.120})")


def _compare(
    texts: Sequence[str], tokenizer: "Tokenizer", folder: Path, named: str, *, lowers: bool = False
) -> None:
    """Compare our ids with the AutoTokenizer of a folder, which may read texts in lower case (`lowers`), for
    each text and each pair of neighbours."""
    auto_tokenizer = open_auto_tokenizer(folder)
    cuts = tokenizer.truncation is not None
    for first, second in [*zip(texts, repeat(None)), *pairwise([*texts, texts[0]])]:
        if second == "":
            continue  # transformers reads an empty second text as none
        row = [first] if second is None else [first, second]
        inputs = list(map(str.lower, row)) if lowers else row
        theirs = auto_tokenizer(*inputs, truncation=cuts, return_token_type_ids=True)
        ours = tokenizer.encode(first, second)
        _require_equal(row, "ids", ours.ids, theirs["input_ids"], named)
        if second is not None:
            _require_equal(row, "token types", ours.type_ids, theirs["token_type_ids"], named)


def _require_equal(row: list[str], noun: str, ours: list[int], theirs: list[int], named: str) -> None:
    if ours == theirs:
        return
    at = 0
    while ours[at : at + 1] == theirs[at : at + 1]:
        at += 1
    texts = " and ".join(repr(text[:60]) for text in row)
    raise BrimfulError(
        f"the {noun} of {texts} differ from those of AutoTokenizer of {named} at token {at}:"
        f" {ours[at : at + 3]} instead of {theirs[at : at + 3]}; nothing was written"
    )
