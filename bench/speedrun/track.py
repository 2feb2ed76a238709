"""The tracks of the speedrun: what is trained on, how it is scored, and how long the rivals may take."""

from dataclasses import dataclass, replace

VOCABULARY = 16384
MASK_RATE = 0.15


@dataclass(frozen=True)
class Track:
    """What all sides of a comparison share.

    Attributes:
        language: english or chinese; it names the track.
        pages: folders of HTML below usr/share of a Debian package, which comes first.
        vocabulary: pieces of the WordPiece tokenizer, at most.
        model: the preset whose `bert` has the number of parameters that nobody exceeds.
        max_length: tokens of the longest sequence that is scored, and of the rivals' sequences.
        held_out_share: of the documents.
        held_out_tokens: the most that are scored.
        seconds: what the rivals get, from the start of their process, for each target.
        tasks: tables for the probe and for fine-tuning (bench/finetune/data.py).
        quick: toy sizes, which show that everything runs.
        fixed: the hash of the held-out part when the track was fixed.
    """

    language: str
    pages: tuple[str, ...]
    vocabulary: int = VOCABULARY
    model: str = "mini"
    max_length: int = 128
    held_out_share: float = 0.02
    held_out_tokens: int = 100_000
    seconds: tuple[float, ...] = (600.0, 1200.0, 2400.0)
    tasks: tuple[str, ...] = ()
    quick: bool = False
    fixed: str = ""

    @property
    def name(self) -> str:
        """Of its folders and records."""
        return f"{self.language}-{self.model}" + ("-quick" if self.quick else "")

    @property
    def packages(self) -> tuple[str, ...]:
        """The Debian packages of its pages."""
        return tuple(dict.fromkeys(page.partition("/")[0] for page in self.pages))

    @property
    def full(self) -> bool:
        """Whether a record may be made on it."""
        return not self.quick and self.seconds == Track.seconds


TARGETS = ("early", "middle", "late")
ENGLISH = Track(
    "english",
    (
        "python3.11-doc/doc/python3.11/html",
        "debian-handbook/doc/debian-handbook/html/en-US",
        "debian-reference-en/debian-reference",
        "anarchism/doc/anarchism/html",
        "postgresql-doc-15/doc/postgresql-doc-15/html",
        "git-doc/doc/git-doc",
        "apache2-doc/doc/apache2-doc/manual/en",
        "python-django-doc/doc/python-django-doc/html",
        "sqlite3-doc/doc/sqlite3",
        "octave-doc/doc/octave/octave.html",
        "gimp-help-en/gimp/2.0/help/en",
        "kicad-doc-en/doc/kicad/help/en",
        "exim4-doc-html/doc/exim4-doc-html/spec_html",
        "postfix-doc/doc/postfix/html",
        "debian-policy/doc/debian-policy",
        "developers-reference/developers-reference",
        "installation-guide-amd64/doc/installation-guide-amd64/en",
        "aptitude-doc-en/doc/aptitude/html/en",
    ),
    tasks=("r8", "newsgroups"),
    fixed="08b8940480c6ae152f42cb97afe80deb676c3801431def434c11c640d0aea7c2",
)
CHINESE = Track(
    "chinese",
    (
        "debian-handbook/doc/debian-handbook/html/zh-CN",
        "debian-handbook/doc/debian-handbook/html/zh-TW",
        "gimp-help-zh-cn/gimp/2.0/help/zh_CN",
        "kicad-doc-zh/doc/kicad/help/zh",
    ),
    held_out_share=0.05,
    tasks=("reviews",),
    fixed="8b395e8d2c53f009e124ad57cd2ebfafe0d550112bee1ebaddb165b558a740a6",
)
TRACKS = {track.language: track for track in (ENGLISH, CHINESE)}


def quick(track: Track) -> Track:
    """The track at toy sizes, on Brimful's own pages: no network is needed."""
    return replace(
        track,
        pages=(),
        vocabulary=1000,
        model="tiny",
        max_length=64,
        held_out_share=0.2,
        held_out_tokens=2000,
        seconds=(7.0, 8.0, 10.0),
        tasks=(),
        quick=True,
    )
