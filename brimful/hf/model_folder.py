"""A model's folder, opened once: the content of its JSON files, without its weights and without torch.

config.json describes the model, and modules.json of sentence-transformers, if there is one, the modules after
the encoder. Each file is read once, when something in it is needed.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object, require_utf8
from brimful.base.types import Values
from brimful.corpus.text.folder_files import CONFIG as TOKENIZER
from brimful.corpus.text.folder_files import read_modules, read_transformer_settings, read_values

if TYPE_CHECKING:
    from brimful.model.shape import EncoderConfig, TextPooling

OVERLAP = "window_overlap"
"""The key of config.json for `TaskModel.overlap`."""
TEMPERATURE = "calibration_temperature"
"""The key of config.json for `TaskModel.temperature`."""
SETTINGS = "task_settings"
"""The key of config.json for `Task.settings`."""
PAIRS = "text_pairs"
"""The key of config.json for `TaskModel.pairs`."""

PROBLEMS = {
    "ForSequenceClassification": "single_label_classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
}
"""The endings of the names of classes with a task's head; their problem_type where config.json has none."""

POOLING, CLASSIFIER, NORMALIZE = "1_Pooling", "2_Dense", "2_Normalize"
"""The subfolders of the modules that Brimful writes."""
POOLINGS: "dict[str, TextPooling]" = {"mean": "mean", "cls": "first", "max": "max"}
"""Our poolings, by their names in sentence-transformers and in `classifier_pooling` of config.json."""
FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The key of each pooling in 1_Pooling/config.json, which all versions of sentence-transformers read."""
IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of a Dense without activation."""
INTEGER_WEIGHTS = "int8_weights.safetensors"
"""The file of an export in eight bits. `transformers` reads no file of this name, with any `variant`."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin", INTEGER_WEIGHTS)
"""The files of weights, each also as an index of several files; the first that exists is read."""
_CONFIGS = ("config.json", "bert_config.json")
"""The names of the file that describes a model; Google's folders, and copies of them, have the second."""


@dataclass(frozen=True)
class ModelFolder:
    """A Hugging Face folder, or one of sentence-transformers.

    Properties raise a BrimfulError that names the file where a file is damaged.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def open(cls, path: "Path | str | ModelFolder", kind: str = "model") -> "ModelFolder":
        """Open the folder that `path` names: the path itself, or the folder of a run in it.

        Args:
            path: a ModelFolder is returned as it is.
            kind: the preferred folder of a run, "encoder" (pretraining) or "model" (a task model). If only
                the other one exists, it is used.

        Raises:
            BrimfulError: there is no such folder, or its name is not UTF-8.
        """
        if isinstance(path, ModelFolder):
            return path
        path = Path(path)
        require_utf8(path)
        for candidate in (path, path / kind, path / "encoder", path / "model"):
            folder = cls(candidate)
            if folder.config_file.is_file():
                return folder
        why = "expected config.json and model.safetensors, or a finished run"
        if not path.is_dir():
            why = "there is no such folder"
            if "-" in str(path) and len(path.parts) <= 2 and not Path(path.parts[0]).exists():
                why += f"; from the Hugging Face hub: hf download {path} --local-dir {path.name}"
        elif (path / "MANIFEST.json").is_file():
            why = f"it is prepared text; brimful pretrain --data {path} trains an encoder on it"
        elif (path / "config.yaml").is_file() and not (path / "summary.json").is_file():
            why = f"the run is not finished; continue it with --resume {path}"
        raise BrimfulError(f"{path} holds no model: {why}")

    @cached_property
    def modules(self) -> list[tuple[str, str]]:
        """The class and the subfolder of each module of sentence-transformers; empty without modules."""
        return read_modules(self.path)

    @cached_property
    def encoder_path(self) -> Path:
        """Where the encoder's files are: the folder, or in old ones the subfolder of the Transformer."""
        if (self.path / _CONFIGS[0]).is_file():
            return self.path
        for kind, path in self.modules:
            if kind == "Transformer":
                return self.path / path
        return self.path

    @cached_property
    def config_file(self) -> Path:
        """The file that describes the model, beside the encoder; `config.json` if it is missing."""
        for name in _CONFIGS:
            if (self.encoder_path / name).is_file():
                return self.encoder_path / name
        return self.encoder_path / _CONFIGS[0]

    @cached_property
    def values(self) -> Values:
        """The content of `config_file`."""
        return read_object(self.config_file)

    @property
    def class_name(self) -> str:
        """The class of `transformers` that config.json names; empty if it names none.

        Raises:
            BrimfulError: its `architectures` are not a list of names, or it is a model of multiple choice.
        """
        names = self.values.get("architectures") or [""]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise BrimfulError(f"{self}: the architectures of config.json are not a list of names of classes")
        if names[0].endswith("ForMultipleChoice"):
            raise BrimfulError(f"{self} is a model of multiple choice: --task classification scores pairs")
        return names[0]

    @property
    def has_task(self) -> bool:
        """Whether it has a task's head: a class in config.json, or a classifier of the mean as modules."""
        is_task = self.class_name.endswith(tuple(PROBLEMS))
        return is_task or ("problem_type" in self.values and self.has_classifier)

    @cached_property
    def pooling_values(self) -> Values:
        """The settings of the Pooling among the modules; empty without one."""
        for kind, path in self.modules:
            if kind == "Pooling":
                return read_object(self.path / path / "config.json")
        return {}

    @property
    def pooling_modes(self) -> list[str]:
        """The poolings whose vectors the module concatenates, by their names in sentence-transformers."""
        values = self.pooling_values
        modes = values.get("pooling_mode") or [mode for mode, flag in FLAGS.items() if values.get(flag)]
        if values and not modes:
            return ["mean"]  # the default of sentence-transformers
        return [modes] if isinstance(modes, str) else list(map(str, modes))

    @property
    def pooling(self) -> "TextPooling | None":
        """The pooling among the modules; None without one, or for one that Brimful does not know."""
        modes = self.pooling_modes
        return POOLINGS.get(modes[0]) if len(modes) == 1 else None

    @cached_property
    def has_classifier(self) -> bool:
        """Whether the modules are an encoder, a mean and a Dense without activation, and nothing else."""
        if self.modules[1:] != [("Pooling", POOLING), ("Dense", CLASSIFIER)] or self.pooling != "mean":
            return False
        return read_object(self.path / CLASSIFIER / "config.json").get("activation_function") == IDENTITY

    def text_length(self, config: "EncoderConfig") -> int:
        """Return the length, in tokens, at which to cut texts: max_seq_length of sentence-transformers, or
        AutoTokenizer's length; at most the encoder's longest."""
        length = None
        if self.modules:
            length = read_transformer_settings(self.encoder_path).get("max_seq_length")
        if length is None:
            values = read_values(self.encoder_path, TOKENIZER)
            length = values.get("model_max_length", values.get("max_len"))
        if not isinstance(length, int) or length < 3:  # [CLS], a token, [SEP]
            return config.max_length
        return min(length, config.max_length)


# The options of a command that name the folder of a model (cli/path_checks.py).
ModelPath = Annotated[str, ModelFolder.open]
