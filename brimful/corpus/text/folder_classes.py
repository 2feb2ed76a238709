"""The tokenizer classes of transformers 5.23 that encoders have, built from a vocabulary and settings.

A class builds its pipeline anew, even from a tokenizer.json: of that file it takes the vocabulary, the
merges and SentencePiece's character map, and what the settings do not say has the class's own default.
Only `TokenizersBackend`, also named PreTrainedTokenizerFast, takes a tokenizer.json as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brimful.corpus.text.folder_settings import ROLES, FolderSettings, token_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Names = dict[str, Any]
"""Special tokens by role, in order: a name or an `AddedToken`."""


@dataclass
class Vocabulary:
    """What a folder's files give to a class.

    Attributes:
        pieces: pieces and ids; of Unigram, pairs of piece and score.
        merges: of BPE.
        characters: SentencePiece's character map, if there is one.
    """

    pieces: dict[str, int] | list[tuple[str, float]]
    merges: list[tuple[str, str]] = field(default_factory=list)
    characters: bytes | None = None

    def numbered(self) -> dict[str, int]:
        """Pieces and ids; of equal pieces the last one counts."""
        if isinstance(self.pieces, dict):
            return self.pieces
        return {piece: index for index, (piece, _) in enumerate(self.pieces)}

    def first(self, piece: str) -> int:
        """The id of a piece, 0 where there is none; of equal pieces the first one counts."""
        return next(
            (
                index
                for index, each in enumerate(self.pieces)
                if (each if isinstance(each, str) else each[0]) == piece
            ),
            0,
        )


@dataclass(frozen=True)
class TokenizerClass:
    """One class, or several that do the same.

    Attributes:
        names: of the classes, without "Fast".
        file: of its vocabulary, where there is no tokenizer.json.
        roles: the special tokens that it has by default; None for one without.
        build: the pipeline, from the vocabulary, the settings and the special tokens.
        around: the post-processor, given the id of each special token; without it, that of a tokenizer.json
            counts, or else what `build` gives.
        token_types: whether it gives a model token types by default.
    """

    names: tuple[str, ...]
    file: str
    roles: Mapping[str, Any]
    build: Callable[[Vocabulary, FolderSettings, Names], "Tokenizer"]
    around: Callable[["Tokenizer", FolderSettings, Names, Callable[[str], int]], Any] | None = None
    token_types: bool = False


def _bert(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary.numbered(), unk_token=token_name(names["unk_token"])))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.values.get("strip_accents"),
        lowercase=settings.flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _dpr(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    settings.values["do_lower_case"] = True  # whatever it says
    return _bert(vocabulary, settings, names)


def _around_bert(
    tokenizer: "Tokenizer", settings: FolderSettings, names: Names, find: Callable[[str], int]
) -> Any:
    from tokenizers import processors

    cls, sep = (token_name(names[role]) for role in ("cls_token", "sep_token"))
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[
            (cls, 2 if names["cls_token"] is None else find("cls_token")),
            (sep, 3 if names["sep_token"] is None else find("sep_token")),
        ],
    )


def _byte_level(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model = models.BPE(
        vocab=vocabulary.numbered(),
        merges=vocabulary.merges,
        continuing_subword_prefix="",
        end_of_word_suffix="",
        fuse_unk=False,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=settings.flag("add_prefix_space", False)
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _around_roberta(
    tokenizer: "Tokenizer", settings: FolderSettings, names: Names, find: Callable[[str], int]
) -> Any:
    from tokenizers import processors

    return processors.RobertaProcessing(
        (token_name(names["sep_token"]), find("sep_token")),
        (token_name(names["cls_token"]), find("cls_token")),
        settings.flag("trim_offsets", True),
        settings.flag("add_prefix_space", False),
    )


def _herbert(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    model = models.BPE(
        vocab=vocabulary.numbered(),
        merges=vocabulary.merges,
        unk_token=token_name(names["unk_token"]),
        end_of_word_suffix="</w>",
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=False, strip_accents=False, clean_text=True, handle_chinese_chars=True
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def _around_herbert(
    tokenizer: "Tokenizer", settings: FolderSettings, names: Names, find: Callable[[str], int]
) -> Any:
    from tokenizers import processors

    return processors.BertProcessing((token_name(names["sep_token"]), 2), (token_name(names["cls_token"]), 0))


def _unigram(vocabulary: Vocabulary, settings: FolderSettings, unknown: int) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if isinstance(vocabulary.pieces, dict):
        raise ValueError("the vocabulary has no scores, which Unigram needs")
    tokenizer = Tokenizer(models.Unigram(vocabulary.pieces, unk_id=unknown, byte_fallback=False))
    if vocabulary.characters is not None:
        tokenizer.normalizer = normalizers.Precompiled(vocabulary.characters)
    scheme: Any = "always" if settings.truth("add_prefix_space", True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer


def _xlm_roberta(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    return _unigram(vocabulary, settings, 3)


def _camembert(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import AddedToken

    if isinstance(names["mask_token"], str):
        names["mask_token"] = AddedToken(names["mask_token"], lstrip=True, special=True)
    if settings.values.get("additional_special_tokens") is None:
        settings.values["additional_special_tokens"] = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
    unknown = token_name(names["unk_token"])
    return _unigram(vocabulary, settings, vocabulary.first(unknown))


def _albert(vocabulary: Vocabulary, settings: FolderSettings, names: Names) -> "Tokenizer":
    from tokenizers import normalizers, processors

    tokenizer = _unigram(vocabulary, settings, 1)
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.truth("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.truth("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if tokenizer.normalizer is not None:
        steps.append(tokenizer.normalizer)
    tokenizer.normalizer = normalizers.Sequence(steps)
    ends = [(shown, tokenizer.token_to_id(token_name(names[role]))) for shown, role in _ALBERT_ENDS.items()]
    if missing := [shown for shown, index in ends if index is None]:
        raise ValueError(f"the vocabulary lacks {' and '.join(missing)}")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(shown, index) for shown, index in ends if index is not None],
    )
    return tokenizer


def _around_unigram(
    tokenizer: "Tokenizer", settings: FolderSettings, names: Names, find: Callable[[str], int]
) -> Any:
    from tokenizers import processors

    bos, eos = (token_name(names[role]) for role in ("bos_token", "eos_token"))
    return processors.TemplateProcessing(
        single=[bos, "$A", eos],
        pair=[bos, "$A", eos, eos, "$B", eos],
        special_tokens=[(bos, find("bos_token")), (eos, find("eos_token"))],
    )


_BERT_ROLES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_ROBERTA_ROLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
BERT = TokenizerClass(
    tuple(
        f"{name}Tokenizer"
        for name in ["Bert", "Electra", "MobileBert", "SqueezeBert", "LayoutLM", "Lxmert", "ConvBert"]
    ),
    "vocab.txt",
    _BERT_ROLES,
    _bert,
    _around_bert,
    token_types=True,
)
DISTILBERT = TokenizerClass(("DistilBertTokenizer",), "vocab.txt", _BERT_ROLES, _bert, _around_bert)
DPR = TokenizerClass(
    tuple(f"DPR{name}Tokenizer" for name in ("ContextEncoder", "QuestionEncoder", "Reader")),
    "vocab.txt",
    _BERT_ROLES,
    _dpr,
    _around_bert,
    token_types=True,
)
ROBERTA = TokenizerClass(
    tuple(f"{name}Tokenizer" for name in ("Roberta", "Bart", "Longformer", "LED", "Mvp")),
    "vocab.json",
    _ROBERTA_ROLES,
    _byte_level,
    _around_roberta,
)
_END = "<|endoftext|>"
_GPT2_ROLES = {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": None}
GPT2 = TokenizerClass(("GPT2Tokenizer",), "vocab.json", _GPT2_ROLES, _byte_level)
_HERBERT_ROLES = {role: _ROBERTA_ROLES[role] for role in _BERT_ROLES}
HERBERT = TokenizerClass(("HerbertTokenizer",), "vocab.json", _HERBERT_ROLES, _herbert, _around_herbert)
XLM_ROBERTA = TokenizerClass(
    ("XLMRobertaTokenizer",), "sentencepiece.bpe.model", _ROBERTA_ROLES, _xlm_roberta, _around_unigram
)
CAMEMBERT = TokenizerClass(
    ("CamembertTokenizer",), "sentencepiece.bpe.model", _ROBERTA_ROLES, _camembert, _around_unigram
)
_ALBERT_ENDS = {"[CLS]": "cls_token", "[SEP]": "sep_token"}
_ALBERT_ROLES = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "unk_token": "<unk>",
    "sep_token": "[SEP]",
    "pad_token": "<pad>",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ALBERT = TokenizerClass(("AlbertTokenizer",), "spiece.model", _ALBERT_ROLES, _albert)
BACKEND = None
"""Stands for `TokenizersBackend`: the tokenizer.json as it is."""
_CLASSES = {
    name: each
    for each in (BERT, DISTILBERT, DPR, ROBERTA, GPT2, HERBERT, XLM_ROBERTA, CAMEMBERT, ALBERT)
    for name in each.names
}
_OF_MODELS = {
    **dict.fromkeys(("bert", "electra", "megatron-bert", "distilbert"), "BertTokenizer"),
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "modernbert": "TokenizersBackend",
}
"""The class that transformers registers for a type of model."""
_OTHER_NAMES = """
Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt BlenderbotSmall Blenderbot ByT5
CLIP CTRL Canine Character Clvp CodeGen CodeLlama Cohere CpmAnt Cpm Deberta DebertaV2 Dia Esm Esmc FNet FSMT
FastSpeech2Conformer Flaubert Funnel GPTNeoXJapanese GPTNeoX GPTSw3 Gemma Lasr LayoutLMv2 LayoutLMv3 LayoutXLM
Llama Luke M2M100 MBart50 MBart MLuke MPNet Marian MarkupLM Mgpstr MyT5 Nllb Nougat OpenAIGPT PLBart Parakeet
Pegasus Perceiver Phobert Pop2Piano ProphetNet Qwen2 Qwen3_5 Rag Reformer RemBert RoCBert RoFormer SeamlessM4T
Siglip2 Siglip Speech2Text SpeechT5 Splinter T5 Tapas Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC
Wav2Vec2PhonemeCTC Whisper XGLM XLM XLNet
"""
_OTHERS = frozenset(f"{name}Tokenizer" for name in _OTHER_NAMES.split())
"""Classes of transformers that are not built here. Other names it reads as its backend."""


class OtherClassError(Exception):
    """A folder has a class of transformers that is not built here."""


def tokenizer_class(model: Mapping[str, Any], config: Mapping[str, Any]) -> TokenizerClass | None:
    """The class that AutoTokenizer chooses; None for its backend.

    Args:
        model: config.json.
        config: tokenizer_config.json.

    Raises:
        OtherClassError: it is not built here.
    """
    class_name = config.get("tokenizer_class") or model.get("tokenizer_class")
    registered = _OF_MODELS.get(str(model.get("model_type")))
    if class_name is None:
        return BACKEND if registered in (None, "TokenizersBackend") else _CLASSES[registered]
    name = str(class_name).removesuffix("Fast")
    remote = config.get("auto_map")
    own = isinstance(remote, list) or (isinstance(remote, dict) and "AutoTokenizer" in remote)
    if registered == "TokenizersBackend" and name != registered and not own:
        return BACKEND
    if name in _OTHERS:
        raise OtherClassError(str(class_name))
    return _CLASSES.get(name)


def special_tokens(kind: TokenizerClass | None, settings: FolderSettings) -> Names:
    """The special tokens of a folder, by role: what its files say, else the class's own."""
    defaults = {} if kind is None else kind.roles
    names = {role: settings.values.get(role, defaults.get(role)) for role in ROLES}
    return names | settings.more_roles
