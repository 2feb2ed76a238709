"""WordPiece whose pieces may hold several Chinese characters.

BERT sets every Han character apart, so a model must learn each word anew from its characters. Here runs
of Han characters stay together and the vocabulary has their frequent pieces (不推荐, 服务态度): a text has
fewer tokens, each with more meaning. The differences from BERT's WordPiece:

- continuations have no `##`: a piece has one id wherever it stands, since Chinese has no spaces;
- characters outside the alphabet are set apart, since WordPiece makes [UNK] of a whole run that holds one;
- longer runs are cut at 32 characters, since longest match looks at every substring of a run; a piece has at
  most four characters, like nearly all Chinese words.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.corpus.text.folding import Folding, normalizer
from brimful.corpus.text.tokenizer_pipelines import LONGEST_PIECE, LONGEST_RUN, drop_long_words
from brimful.corpus.tokenize.alphabet import Alphabet

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LEAST_FREQUENCY = 4
_ESCAPED = set("\\^-[]&~|")


def train_pieces(
    texts: Iterable[str], size: int, folding: Folding | None, *, special: tuple[str, ...]
) -> "Tokenizer":
    """Train the tokenizer, without its post-processor; equal texts give an equal one.

    Args:
        folding: of case and accents; None keeps both.
        size: the most entries; fewer where no more pieces occur four times.
        special: names of the special tokens, which get the first ids.

    Raises:
        BrimfulError: the texts hold no character.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    normal = normalizer(folding, han_apart=False)
    counter = Alphabet(normal)
    sample = counter.read(texts)
    alphabet, _ = counter.choose((size - len(special)) * 3 // 4)
    if not alphabet:
        raise BrimfulError("cannot train a tokenizer: the texts are empty")
    known = "".join(f"\\{c}" if c in _ESCAPED else c for c in sorted(alphabet))
    cuts = [
        pre_tokenizers.BertPreTokenizer(),
        pre_tokenizers.Split(Regex(rf"\p{{Han}}{{1,{LONGEST_RUN}}}"), "isolated"),
        pre_tokenizers.Split(Regex(f"[^{known}]"), "isolated"),
    ]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, drop_long_words()])
    trainer = trainers.WordPieceTrainer(
        vocab_size=2 * size,
        special_tokens=list(special),
        initial_alphabet=sorted(alphabet),
        limit_alphabet=len(alphabet),
        min_frequency=LEAST_FREQUENCY,
        continuing_subword_prefix="",
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample, trainer)
    found = tokenizer.get_vocab(with_added_tokens=False)
    pieces = [p for p in sorted(found, key=found.__getitem__) if len(p) <= LONGEST_PIECE or p.isascii()]
    vocabulary = {piece: number for number, piece in enumerate(pieces[:size])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix=""))
    made.normalizer = normal
    made.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    made.decoder = decoders.WordPiece(prefix="")
    return made
