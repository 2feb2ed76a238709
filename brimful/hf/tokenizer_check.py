"""Whether the ids of a written folder are those of the folder that it was made from, by AutoTokenizer.

The texts are of many scripts and kinds, with the tokens that the tokenizer adds and with the model's markers.
Markers in a text are plain text here (`text.markers`), and AutoTokenizer makes tokens of them where a folder
does not say otherwise; so texts that spell a marker are compared with the written folder alone.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.auto_tokenizer import open_auto_tokenizer
from brimful.corpus.text.folder_files import find_vocabulary_file
from brimful.corpus.text.sentence_folder import lowers_text
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
_MOST_ADDED = 24


def sample_texts(tokenizer: "Tokenizer") -> tuple[list[str], list[str]]:
    """The texts that spell no marker, some with added tokens, and those that do."""
    names = marker_names(tokenizer)
    added = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    chosen = [name for name in added if name not in names]
    step = max(1, len(chosen) // _MOST_ADDED)
    plain = [*TEXTS, *_written(chosen[::step])]
    lowered = [name.lower() for name in names]
    spelled = [text for text in plain if any(name in text.lower() for name in lowered)]
    return [text for text in plain if text not in spelled], [*spelled, *_written(sorted(names))]


def _written(names: Iterable[str]) -> list[str]:
    cases = [form for name in names for form in dict.fromkeys((name, name.lower(), name.upper()))]
    return [around.replace("{}", name) for name in cases for around in _AROUND]


def check_ids(source: Path, folder: Path, max_length: int, *, whole: bool = True) -> None:
    """Compare ids with those of `transformers`, which must be installed.

    Args:
        source: the folder that was given.
        folder: the one that was written.
        max_length: tokens at which its texts are cut.
        whole: whether it has all pieces of the source's; else only the written folder is compared.

    Raises:
        BrimfulError: ids differ; the message has an example.
    """
    tokenizer = read(folder)
    plain, spelled = sample_texts(tokenizer)
    _compare(plain + spelled, tokenizer, folder, f"AutoTokenizer of {folder.name}")
    tokenizer.enable_truncation(max_length, direction=truncation_side(tokenizer))
    numbers = " ".join(map(str, range(max_length)))
    _compare([numbers], tokenizer, folder, f"AutoTokenizer of {folder.name}, which cuts it")
    tokenizer.no_truncation()
    if not whole or find_vocabulary_file(source) is None:
        return
    try:
        _compare(plain, tokenizer, source, f"AutoTokenizer of {source}", lowers=lowers_text(source))
    except BrimfulError:
        raise
    except Exception as error:  # whatever the files of a folder make transformers raise
        reason = " ".join(str(error).split())
        warn(f"{source}: transformers cannot use the tokenizer, so its ids were not compared ({reason:.120})")


def _compare(
    texts: Sequence[str], tokenizer: "Tokenizer", folder: Path, whose: str, *, lowers: bool = False
) -> None:
    """Compare each text, and each pair of neighbours, with what AutoTokenizer of the folder makes of it; of
    its lower case if the folder `lowers`."""
    theirs = open_auto_tokenizer(folder)
    pairs = zip(texts, [*texts[1:], texts[0]], strict=True)
    for given in [*((text,) for text in texts), *pairs]:
        if given[1:] == ("",):
            continue  # transformers reads an empty second text as none
        said = [text.lower() for text in given] if lowers else given
        wanted = theirs(*said, truncation=tokenizer.truncation is not None, return_token_type_ids=True)
        ours = tokenizer.encode(given[0], given[1] if len(given) == 2 else None)
        _require_equal(given, "ids", ours.ids, wanted["input_ids"], whose)
        if len(given) == 2:
            _require_equal(given, "token types", ours.type_ids, wanted["token_type_ids"], whose)


def _require_equal(given: Sequence[str], what: str, found: list[int], wanted: list[int], whose: str) -> None:
    if found == wanted:
        return
    shown = " and ".join(repr(text[:60]) for text in given)
    same = [a == b for a, b in zip(found, wanted, strict=False)]
    at = same.index(False) if False in same else len(same)
    raise BrimfulError(
        f"the {what} of {shown} differ from those of {whose} at token {at}:"
        f" {found[at : at + 3]} instead of {wanted[at : at + 3]}; nothing was written"
    )
