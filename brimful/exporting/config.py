"""The options of `brimful export`."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from brimful.corpus.reading.read import ReadConfig
from brimful.exporting.formats import FormatName
from brimful.types import Step


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write a model for deployment, and check it."""

    EXAMPLE = "runs/finetune --out model --format onnx"

    run: Annotated[str, tyro.conf.Positional]
    """Run directory of pretrain, finetune or distil, or any Hugging Face folder: BERT, RoBERTa, XLM-R,
    CamemBERT, Electra, Megatron-BERT or ModernBERT; weights in model.safetensors or pytorch_model.bin, whole
    or sharded; tokenizer.json, vocab.txt, or vocab.json with merges.txt."""
    out: str
    """Folder to create. An earlier export there is replaced; your own files beside it stay."""
    step: Step | None = None
    """For a run of pretrain, finished or not, or the training under way in one of finetune: the checkpoint
    after this many updates, or of the best evaluation. An average of weights is taken, if there is one."""
    format: FormatName | None = None
    """hf: config.json, model.safetensors, tokenizer.json for `transformers`; sentence-transformers: the same
    with a pooling, for encoders without a head and for classifiers of the mean in BERT-like models, which
    `transformers` has no class for; onnx: onnx/model.onnx, the whole model, of an encoder with its pooling
    and vectors of length 1. By default hf; of a folder of sentence-transformers that is no run,
    sentence-transformers."""
    masked_lm: bool = False
    """Of a masked language model as a graph: the scores of the vocabulary for each token, and no vectors."""
    keep_pieces_of: tuple[str, ...] = ()
    """Files and folders of text, or a prepared corpus: pieces that these texts never use are dropped, with
    their embeddings. The texts keep their encodings; other texts fall back to smaller pieces."""
    read: ReadConfig = ReadConfig(split="line")
    """How these files become texts."""
    more_fields: tuple[str, ...] = ()
    """Further fields or columns that hold text. text_b, of pairs, is read wherever a file has it."""
    dry_run: bool = False
    """Read and check everything, and write nothing."""
