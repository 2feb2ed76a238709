"""Raw text -> clean documents, by the rules of docs/prepare.md in their order.

Every rule takes time linear in the size of a document, except a user's pattern, which the watchdog bounds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import ne
from typing import Literal

from brimful.base.config import require_positive
from brimful.base.errors import BrimfulError, require_range
from brimful.corpus.cleaning import characters
from brimful.corpus.cleaning.fields import keep_lines, read_field
from brimful.corpus.cleaning.garbage import drop_css, drop_tokens
from brimful.corpus.cleaning.markup import read_page
from brimful.corpus.cleaning.own_rules import check_pattern, foreign_run_rule, pattern_rule
from brimful.corpus.cleaning.quality import count_stop_words, is_mostly_ascii, language_filter
from brimful.corpus.reading.many_texts import begins_a_page
from brimful.corpus.reading.nonsense import count_issue

TAGS_GONE = "tags of HTML removed from fields (--clean.html never keeps them)"
TAGS_LEFT = "tags and entities left, since no tag shows HTML (--clean.html always reads them)"
# The marks after which long texts are cut, the best first.
_CUT_MARKS = ("\n", "。", "！", "？", ". ", "! ", "? ", "；", "; ", " ")
_EXAMPLES = 2
_EXCERPT_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    """The rules of cleaning, and their limits.

    Raises:
        BrimfulError: a number is out of its range.
    """

    html: Literal["auto", "always", "never"] = "auto"
    """Text to read as HTML. auto: pages, and fields in which a tag has an attribute or an end; always: all
    text; never: no text."""
    boilerplate: bool = True
    """Drop navigation, page footers and hidden parts of HTML."""
    main_content: bool = False
    """Keep only the main content of HTML, as resiliparse finds it: good for articles, lossy for others."""
    characters: bool = True
    """Replace control, private-use and replacement characters by spaces. Off: lone surrogates only."""
    invisible: bool = True
    """Drop soft hyphens, zero-width spaces and direction marks."""
    nfkc: bool = False
    """Normalize to NFKC. The tokenizer does the same at inference."""
    simplified: bool = False
    """Turn traditional Chinese characters into simplified ones (needs OpenCC). No tokenizer does so later."""
    css: bool = True
    """Drop style sheets in the text. A text about CSS loses its examples."""
    garbage: bool = True
    """Drop tokens that look like hashes, UUIDs or base64. Off for logs and code."""
    drop_patterns: tuple[str, ...] = ()
    """Regular expressions whose matches are dropped, each counted. ^ and $ stand for the ends of lines."""
    max_foreign_run: int = 0
    """Drop a run of this many characters in scripts with less than a third of its letters. 0: off."""
    blanks: bool = True
    """Reduce runs of whitespace to one space or one line break. Off for code."""
    min_characters: int = 2
    """Drop a document that is shorter."""
    max_undecodable: float = 0.1
    """Drop a document if a larger part of its characters could not be decoded. 1 turns this off."""
    max_symbols: float = 0.7
    """Drop a document if a larger part of it is symbols; a run of them counts as one. 1 turns this off."""
    languages: tuple[str, ...] = ()
    """Keep documents in these languages, such as en and zh, or mixed of two (needs py3langid). Empty: all."""
    min_stop_words: int = 0
    """Drop a document in ASCII letters with fewer English stop words (2 is usual). 0 turns this off."""
    max_characters: int = 32768
    """Cut a document that is longer."""

    def __post_init__(self) -> None:
        require_positive(self, "max_characters", "min_characters", group="clean.")
        if self.min_characters > self.max_characters:
            raise BrimfulError(
                f"clean.min_characters is {self.min_characters}:"
                f" it must be at most clean.max_characters, {self.max_characters}"
            )
        for name in ("max_undecodable", "max_symbols"):
            if not 0 <= getattr(self, name) <= 1:
                raise BrimfulError(f"clean.{name} is {getattr(self, name)}: it must be from 0 to 1")
        require_range(self, "at least 0", "min_stop_words", "max_foreign_run", group="clean.")
        for pattern in self.drop_patterns:
            check_pattern(pattern)


@dataclass(frozen=True)
class Example:
    """A text before and after a rule, around the first change. `after` is empty for a dropped document."""

    input: int
    record: int
    before: str
    after: str


@dataclass(frozen=True)
class _Rule:
    """A rule between markup and judgement, and the name of its counter.

    Attributes:
        apply: text -> (text, number of changes).
        needs: the rule runs only if a survey of the text found one of these bits. 0: the rule always runs,
            since its own search is fast.
        settles: whether the result holds nothing new for later rules and needs no new survey.
    """

    name: str
    apply: Callable[[str], tuple[str, int]]
    needs: int = 0
    settles: bool = False


class Cleaner:
    """Cleans raw documents, counts what every rule did and keeps its first examples.

    Attributes:
        counts: `dropped: REASON` counts documents; the other counters count changes of the rule they name.
        examples: the first two examples of each counter.
        issues: what the user should know about tags; the caller may set another counter for each file.

    Raises:
        BrimfulError: a rule asks for a package that is not installed, or for an unknown language.
    """

    def __init__(self, config: CleanConfig) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[Example]] = {}
        self.issues: Counter[str] = Counter()
        self._rules = _make_rules(config)
        self._is_wanted = language_filter(config.languages) if config.languages else None

    def __call__(self, raw: str, source: tuple[int, int], *, is_html: bool = False) -> list[str]:
        """Clean one raw document; return no document, one, or several if it is too long.

        Args:
            source: the numbers of the input and of the record in it; they name the document in examples.
            is_html: the text comes from an HTML file.
        """
        if raw.count("\ufffd") > self.config.max_undecodable * len(raw):
            return self._drop("undecodable", raw, source)
        text = self._without_html(raw, source, is_html)
        survey_of_text = characters.survey(text)
        for rule in self._rules:
            if rule.needs and not survey_of_text.bits_found & rule.needs:
                continue
            changed, times = rule.apply(text)
            self._count(rule.name, times, text, changed, source)
            text = changed
            if times and not rule.settles:
                survey_of_text = characters.survey(text)
        text = text.strip()
        flaw = self._find_flaw(text, survey_of_text.symbol_share)
        if flaw:
            return self._drop(flaw, text or raw, source)
        pieces = _cut(text, self.config.max_characters)
        if len(pieces) == 1:
            return pieces
        self._count("long documents cut", 1, text, pieces[0], source)
        long_pieces = [piece for piece in pieces if len(piece) >= self.config.min_characters]
        self._count("short ends of cut documents", len(pieces) - len(long_pieces), pieces[-1], "", source)
        return long_pieces

    def _without_html(self, raw: str, source: tuple[int, int], is_html: bool) -> str:
        """Return the text of a page or of a field."""
        config = self.config
        if config.html == "never":
            return raw
        is_page = is_html or begins_a_page(raw)
        if is_page or config.html == "always":
            markup = raw if is_page else keep_lines(raw)
            text = read_page(markup, boilerplate=not config.boilerplate, main_content=config.main_content)
            self._count("html documents", 1, raw[max(raw.find("<body"), 0) :], text, source)
            return text
        if "<" not in raw and "&" not in raw:
            return raw
        field = read_field(raw, boilerplate=not config.boilerplate, main_content=config.main_content)
        if field.is_html:
            self._count("html tags", field.tags, raw, field.text, source)
        issue = TAGS_GONE if field.is_html else TAGS_LEFT
        count_issue(self.issues, issue, field.tags, field.example)
        return field.text

    def _find_flaw(self, text: str, symbol_share: float) -> str | None:
        """Return why a clean text is dropped, or None."""
        config = self.config
        if len(text) < config.min_characters or not text:
            return "too short" if text else "empty"
        if symbol_share > config.max_symbols:
            return "symbols"
        if self._is_wanted is not None and not self._is_wanted(text):
            return "language"
        if config.min_stop_words and is_mostly_ascii(text) and count_stop_words(text) < config.min_stop_words:
            return "stop words"
        return None

    def _drop(self, reason: str, text: str, source: tuple[int, int]) -> list[str]:
        self._count(f"dropped: {reason}", 1, text, "", source)
        return []

    def _count(self, name: str, times: int, before: str, after: str, source: tuple[int, int]) -> None:
        if not times:
            return
        self.counts[name] += times
        examples = self.examples.setdefault(name, [])
        if len(examples) < _EXAMPLES:
            change = [*map(ne, before, after), True].index(True)
            begin = max(change - _EXCERPT_CHARACTERS // 2, 0)
            excerpt = slice(begin, begin + _EXCERPT_CHARACTERS)
            examples.append(Example(*source, before[excerpt], after[excerpt]))


def _make_rules(config: CleanConfig) -> list[_Rule]:
    """Return the rules between markup and judgement, in order."""
    rules = [_Rule("line breaks", characters.unify_line_breaks, characters.LINE_BREAK, settles=True)]
    if config.characters:
        rules.append(_Rule("unwanted characters", characters.blank_unwanted, characters.UNWANTED))
    else:
        rules.append(_Rule("lone surrogates", characters.blank_surrogates, characters.UNWANTED))
    if config.invisible:
        rules.append(_Rule("invisible characters", characters.drop_invisible, characters.INVISIBLE))
    if config.nfkc:
        rules.append(_Rule("normalized to NFKC", characters.to_nfkc))
    if config.simplified:
        rules.append(_Rule("simplified characters", characters.simplifier()))
    if config.css:
        rules.append(_Rule("style rules", drop_css, characters.DECLARATION))
    if config.garbage:
        rules.append(_Rule("garbage tokens", drop_tokens, characters.TOKEN))
    for pattern in config.drop_patterns:
        rules.append(_Rule(f"drop_patterns: {pattern}", pattern_rule(pattern)))
    if config.max_foreign_run:
        rules.append(_Rule("foreign runs", foreign_run_rule(config.max_foreign_run)))
    if config.blanks:  # last, since the other rules leave blanks behind
        needs = characters.BLANK_RUN | characters.OTHER_BLANK
        rules.append(_Rule("blanks", characters.squeeze_blanks, needs, settles=True))
    return rules


def _cut(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` characters, if possible after a mark in its second half."""
    pieces = []
    begin = 0
    while len(text) - begin > limit:
        end = begin + limit
        for mark in _CUT_MARKS:
            place = text.rfind(mark, begin + limit // 2, end)
            if place >= 0:
                end = place + len(mark)
                break
        pieces.append(text[begin:end].strip())
        begin = end
    pieces.append(text[begin:].strip())
    return pieces
