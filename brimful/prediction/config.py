"""The options of `brimful predict`."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import BrimfulError
from brimful.model.shape import TextPooling
from brimful.precision.formats import InferencePrecision
from brimful.tables.layouts import TextColumns

Pool = Literal["auto", "mean", "first", "max"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a model is opened to predict.

    Attributes:
        model: its folder.
        pooling, max_length, overlap, precision: as in `PredictConfig`.
        device: of a model that torch computes; auto: a GPU if there is one.
        stays: whether many small tables follow, as in a server. Then `auto` is decided at once, as for a long
            file, and the copies of weights that fast products make stay in memory.
    """

    model: str
    pooling: TextPooling | None = None
    max_length: int | None = None
    overlap: int | None = None
    precision: InferencePrecision = "auto"
    device: Device = "auto"
    stays: bool = False


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Predict with a fine-tuned or distilled model, or turn texts into vectors with an encoder."""

    EXAMPLE = "--model runs/finetune --input new.txt --output predictions.jsonl"

    model: str
    """Folder of a task model, a static model or an encoder: a run, a Hugging Face folder, an
    export to ONNX or OpenVINO."""
    input: str
    """.txt (one text a line), or TSV, CSV, JSONL or Parquet with the columns text and text_b (optional)."""
    output: str
    """.jsonl, .tsv, .csv or .parquet to write, a row for each text in the order of the input; or .npy:
    vectors, or a task model's scores."""
    columns: TextColumns = TextColumns()
    """Other names of the columns."""
    layout: str | None = None
    """How the input is laid out: glue/mnli, clue/ocnli, squad ... Instead of columns."""
    scores: bool = False
    """Write the texts and their `scores` too: the probability of each label, or the value of a regression.
    Such a file can teach a student (distil --teacher-scores)."""
    pooling: Pool = "auto"
    """Of an encoder: whether a vector is the mean over the tokens, the first token, or the largest value of
    each unit. auto: as its folder says; else the mean."""
    max_length: int | None = None
    """The most tokens of an example; by default the same as in training."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens; by default as in training."""
    precision: InferencePrecision = "auto"
    """Number format of the computation. auto: bf16 on GPUs and CPUs that are faster at it, int8 of an export
    to int8, else fp32. Static models and exports to ONNX or OpenVINO have their own."""
    abstain_below: float | None = None
    """Classification: add a column abstained, true where the probability of the prediction is under this.
    summary.json of a fine-tuning proposes values (abstain)."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        if self.abstain_below is not None and not 0 <= self.abstain_below <= 1:
            raise BrimfulError(f"abstain_below is {self.abstain_below}: a probability is from 0 to 1")

    @property
    def opening(self) -> Opening:
        """How its model is opened."""
        return Opening(
            model=self.model,
            pooling=None if self.pooling == "auto" else self.pooling,
            max_length=self.max_length,
            overlap=self.overlap,
            precision=self.precision,
        )
