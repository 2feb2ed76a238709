"""The options of `brimful export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from brimful.base.config import Argument
from brimful.base.errors import require_range
from brimful.base.types import Step
from brimful.corpus.reading.read import ReadConfig
from brimful.exporting.formats import FormatName, require_replaceable
from brimful.hf.model_folder import ModelFolder
from brimful.runs.start_checks import START
from brimful.tables.text_files import TablePath


def require_exportable(run: str) -> None:
    """Refuse a folder without a model, unless it is a run with checkpoints, which the verb looks at."""
    if not Path(run, START).is_dir():
        ModelFolder.open(run)


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write a model for deployment, and check it."""

    MAIN = ("run", "out", "format", "test", "calibrate", "most_loss", "step", "keep_pieces_of", "dry_run")
    EXAMPLE = "runs/finetune --out model --format onnx"

    run: Annotated[str, require_exportable, Argument(positional=True)]
    """Run directory of pretrain, finetune or distil, or a Hugging Face folder. The model of such a
    folder is BERT, RoBERTa, XLM-R, CamemBERT, Electra, Megatron-BERT or ModernBERT, with weights in
    model.safetensors or pytorch_model.bin, whole or sharded, and with tokenizer.json, vocab.txt, or
    vocab.json and merges.txt."""
    out: Annotated[str, require_replaceable]
    """Folder to create. An earlier export there in the same format is replaced; the export is refused
    where you have edited a page or added files."""
    test: TablePath | None = None
    """A labelled table, on which the export is compared with the model; for an encoder, a file of texts. Its
    columns have the names of the run's tables. By default, for onnx-int8 and int8, which round, test or dev
    of the run or of its teacher: tables, or rows held out."""
    calibrate: TablePath | None = None
    """Texts like those that the model will read, for int8. By default 300 of the run's
    training rows fix the ranges; without a test, all formats that round are compared on them."""
    most_loss: float = 0.005
    """The most that the export may lose of the primary metric, else of the share of equal predictions; for an
    encoder, of the mean cosine. An export that loses more is not written."""
    step: Step | None = None
    """For a run of pretrain, finished or not: the checkpoint after this many updates, or of the best
    evaluation."""
    format: FormatName | None = None
    """The files to write, by the program that loads them; by default hf, but sentence-transformers for its
    own folders, unless they are runs, and for classifiers of the mean in BERT-like models, for which
    `transformers` has no class. hf: config.json, model.safetensors, tokenizer.json for `transformers`;
    sentence-transformers: the same with a pooling, for these classifiers and for encoders without a head;
    onnx: onnx/model.onnx, the whole model, with an encoder's vectors; onnx-int8: onnx/model_quantized.onnx,
    the matrix products in eight bits; int8: as hf, with the steps by which `brimful predict` rounds."""
    keep_pieces_of: tuple[str, ...] = ()
    """Files and folders of text, or a prepared corpus: pieces that these texts never use are dropped, with
    their embeddings. The texts keep their encodings; other texts fall back to smaller pieces."""
    read: ReadConfig = ReadConfig(split="line")
    """How these files become texts."""
    more_fields: tuple[str, ...] = ()
    """Further fields or columns that hold text. text_b, of pairs, is read wherever a file has it."""
    dry_run: bool = False
    """Read and check everything, and write nothing."""

    def __post_init__(self) -> None:
        require_range(self, "at least 0 and at most 1", "most_loss")
