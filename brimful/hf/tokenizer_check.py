"""Whether the ids of a written folder are those of the folder that it was made from, by AutoTokenizer.

The texts are of many scripts and kinds, with the tokens that the tokenizer adds and with the model's markers.
Markers in a text are plain text here (`text.markers`), and AutoTokenizer makes tokens of them where a folder
does not say otherwise; so texts that spell a marker are compared with the written folder alone.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.sentence_folder import lowers_text
from brimful.corpus.text.special_ids import markers, truncation_side
from brimful.corpus.text.tokenizer import read, tokenizer_file

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


class _Encoded(NamedTuple):
    """What AutoTokenizer makes of a text or a pair."""

    first: str
    second: str | None
    ids: list[int]
    types: list[int]


def sample_texts(tokenizer: "Tokenizer") -> tuple[list[str], list[str]]:
    """The texts that spell no marker, some with added tokens, and those that do."""
    names = markers(tokenizer)
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
    theirs = _theirs(folder, plain + spelled)
    _compare(theirs, tokenizer, f"AutoTokenizer of {folder.name}")
    tokenizer.enable_truncation(max_length, direction=truncation_side(tokenizer))
    theirs = _theirs(folder, [" ".join(map(str, range(max_length)))], truncation=True)
    _compare(theirs, tokenizer, f"AutoTokenizer of {folder.name}, which cuts it")
    tokenizer.no_truncation()
    if not whole or tokenizer_file(source) is None:
        return
    try:
        theirs = _theirs(source, plain, lowers=lowers_text(source))
    except Exception as error:  # whatever the files of a folder make transformers raise
        reason = " ".join(str(error).split())
        warn(f"{source}: transformers cannot use the tokenizer, so its ids were not compared ({reason:.120})")
        return
    _compare(theirs, tokenizer, f"AutoTokenizer of {source}")


def _theirs(
    folder: Path, texts: Sequence[str], *, lowers: bool = False, truncation: bool = False
) -> list[_Encoded]:
    """What AutoTokenizer makes of each text and of each pair of neighbours, in lower case if it `lowers`."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    seconds = [*texts[1:], *texts[:1]]
    found = []
    for first, second in [*((text, None) for text in texts), *zip(texts, seconds, strict=True)]:
        if second == "":
            continue  # transformers reads an empty second text as none
        given = [text if text is None or not lowers else text.lower() for text in (first, second)]
        encoding = tokenizer(*given, truncation=truncation, return_token_type_ids=True)
        found.append(_Encoded(first, second, encoding["input_ids"], encoding["token_type_ids"]))
    return found


def _compare(theirs: list[_Encoded], tokenizer: "Tokenizer", whose: str) -> None:
    for first, second, ids, types in theirs:
        ours = tokenizer.encode(first, second)
        if ids != ours.ids:
            what, wanted, got = "ids", ids, ours.ids
        elif second is not None and types != ours.type_ids:
            what, wanted, got = "token types", types, ours.type_ids
        else:
            continue
        shown = " and ".join(repr(text[:60]) for text in (first, second) if text is not None)
        at = next(
            (i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b),
            min(len(wanted), len(got)),
        )
        raise BrimfulError(
            f"the {what} of {shown} differ from those of {whose} at token {at}:"
            f" {got[at : at + 3]} instead of {wanted[at : at + 3]}; nothing was written"
        )
