"""The verbs, listed once. `brimful VERB` and `brimful.VERB(...)` call VERB of commands/VERB.py; in Python a
hyphen is an underscore."""

VERBS = {
    "prepare": "raw files -> cleaned, tokenized, word-bounded shards",
    "inspect": "documents word by word, what was dropped and why; a run's batches; a folder's checksums",
    "pack": "how full rows get, and how close that is to the proven limit",
    "doctor": "these machines -> how fast they are, and which ranks to train on",
    "pretrain": "shards -> encoder",
    "check": "labelled tables -> what is odd in them",
    "finetune": "encoder + labelled table -> task model",
    "evaluate": "encoders -> their loss on text, and on a task",
    "distil": "task model -> smaller, faster student",
    "distil-encoder": "encoder -> smaller, faster encoder",
    "distil-static": "task model -> static student, which numpy alone serves",
    "augment": "labelled table -> its rows and augmented copies",
    "predict": "task model + texts -> labels or values",
    "serve": "models -> answers over HTTP, and a page to try them",
    "export": "model of any folder -> Hugging Face folder, ONNX or OpenVINO, checked",
    "report": "run directories -> one HTML page",
    "demo": "all of it, on 35,000 Chinese reviews",
}

SCHEMAS = {
    "prepare": "corpus.pipeline.config:PrepareConfig",
    "inspect": "commands.inspect_config:InspectConfig",
    "pack": "packing.config:PackConfig",
    "doctor": "machine.config:DoctorConfig",
    "pretrain": "pretraining.config:PretrainConfig",
    "check": "tasks.judging.config:CheckConfig",
    "finetune": "finetuning.config:FinetuneConfig",
    "evaluate": "evaluation.config:EvaluateConfig",
    "distil": "distillation.task.config:DistilConfig",
    "distil-encoder": "distillation.encoder.config:DistilEncoderConfig",
    "distil-static": "distillation.static.config:DistilStaticConfig",
    "augment": "augmentation.config:AugmentTableConfig",
    "predict": "serving.config:PredictConfig",
    "serve": "serving.config:ServeConfig",
    "export": "exporting.config:ExportConfig",
    "report": "commands.report:ReportConfig",
    "demo": "demonstration.config:DemoConfig",
}
"""The configuration of each verb, in a module without torch: a mistake is said before torch is loaded."""


def python_name(verb: str) -> str:
    """The name of a verb's function and module."""
    return verb.replace("-", "_")
