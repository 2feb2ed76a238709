"""The options of `brimful predict` and `brimful serve`, and those with which both open a model."""

from dataclasses import dataclass
from typing import Annotated, Literal

from brimful.base.config import Argument, require_positive
from brimful.base.errors import UsageError, require_range
from brimful.base.storage import require_file_place
from brimful.base.types import InferencePrecision, Values
from brimful.hf.model_folder import ModelPath
from brimful.model.shape import TextPooling
from brimful.tables.layouts import TableOptions
from brimful.tables.text_files import require_table

Pool = Literal["auto", "mean", "first", "max"]
Device = Literal["auto", "cpu", "cuda"]


def is_stream(name: str) -> bool:
    """Whether a file's name stands for stdin or stdout: `-`, or `-.csv` and the like."""
    return f"{name}.".startswith("-.")


def require_input(name: str) -> None:
    """Refuse a table that does not exist; stdin does."""
    if not is_stream(name):
        require_table(name)


def require_output(name: str) -> None:
    """Refuse a name that no file can have; stdout has none."""
    if not is_stream(name):
        require_file_place(name)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options with which a model is opened to predict.

    Attributes:
        model: its folder.
        pooling, max_length, overlap, precision: as in `PredictConfig`.
        device: where torch computes; auto takes a GPU if there is one.
        resident: whether many small tables follow, as in a server. Then the copies of weights that fast
            products make stay in memory.
    """

    model: str
    pooling: TextPooling | None = None
    max_length: int | None = None
    overlap: int | None = None
    precision: InferencePrecision = "auto"
    device: Device = "auto"
    resident: bool = False


@dataclass(frozen=True, kw_only=True)
class PredictConfig(TableOptions):
    """Predict with a fine-tuned or distilled model, or turn texts into vectors with an encoder."""

    MAIN = (
        *("model", "input", "output", "layout", "scores", "pooling", "max_length"),
        *("overlap", "precision", "abstain_below", "dry_run"),
    )
    EXAMPLE = "--model runs/finetune --input new.txt --output predictions.jsonl"

    model: ModelPath
    """Folder of a task model or an encoder: a run, a Hugging Face folder, an export to ONNX."""
    input: Annotated[str, require_input]
    """.txt (one text a line), or TSV, CSV, JSONL or Parquet with the columns text and text_b (optional).
    - is stdin, one text a line; -.csv and the like, a table."""
    output: Annotated[str, require_output]
    """.jsonl, .tsv, .csv or .parquet to write, a row for each text in the order of the input; or .npy:
    vectors, or a task model's scores. - is stdout, in JSON lines; -.tsv and -.csv, a table."""
    scores: bool = False
    """Write the texts and their `scores` too: the probability of each label, or the value of a regression."""
    pooling: Pool = "auto"
    """How an encoder makes a vector: the mean over the tokens, the first token, or the largest value of each
    unit. auto: as its folder says; else the mean."""
    max_length: int | None = None
    """The most tokens of an example; by default the same as in training."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens; by default as in training."""
    precision: InferencePrecision = "auto"
    """Number format of the computation. auto: bf16 on GPUs and CPUs that are faster at it, int8 of an export
    to int8, else fp32. Exports to ONNX have their own."""
    abstain_below: float | None = None
    """Classification: add a column abstained, true where the probability of the prediction is under this.
    docs/evaluate.md says how to choose it."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_range(self, "at least 0 and at most 1", "abstain_below")

    @property
    def model_options(self) -> ModelOptions:
        """The options with which the model is opened."""
        return ModelOptions(
            model=self.model,
            pooling=None if self.pooling == "auto" else self.pooling,
            max_length=self.max_length,
            overlap=self.overlap,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Answer over HTTP with task models, encoders and exports; a page at / tries them."""

    MAIN = ("models", "host", "port", "precision", "device", "deadline")
    EXAMPLE = "runs/student runs/encoder --port 8080"

    models: Annotated[tuple[ModelPath, ...], Argument(positional=True)]
    """Folders of models, as `predict` takes them. Each is served under its folder's name."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine. Requests must show BRIMFUL_TOKEN of the
    environment as a bearer token, if it is set."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    precision: InferencePrecision = "auto"
    """Number format of the computation, as in `predict`; decided at the start, so that an answer does not
    depend on load. Exports to ONNX have their own."""
    device: Device = "auto"
    """Where torch computes; auto: on a GPU if there is one. Other models use the CPU."""
    deadline: float = 10.0
    """Seconds after which a request that still waits gets 504."""
    queue_requests: int = 256
    """The most requests that are accepted and not answered yet, with as many tokens as the slowest model
    reads in a quarter of the deadline; others get 429."""
    dry_run: bool = False
    """Load and measure the models, and serve nothing."""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("serve needs at least one model: brimful serve MODEL...")
        require_range(self, "at least 0 and at most 65535", "port")
        require_positive(self, "queue_requests")
        require_range(self, "above 0 and below 86400 seconds", "deadline")

    @property
    def model_options(self) -> list[ModelOptions]:
        """The options with which each model is opened."""
        common: Values = {"precision": self.precision, "device": self.device, "resident": True}
        return [ModelOptions(model=path, **common) for path in self.models]
