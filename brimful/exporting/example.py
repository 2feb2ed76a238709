"""example.py of an export: how its format is loaded and read, in twenty lines that need no Brimful."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brimful.corpus.text.special_ids import Side
from brimful.exporting.formats import FORMATS, FormatName
from brimful.hf.folders import HEADS
from brimful.hf.model_folder import PAIRS, SETTINGS, TEMPERATURE
from brimful.hf.reading import TextReading
from brimful.hf.tensors import Head
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead, SpanHead, TokenHead
from brimful.model.shape import TextPooling

_RUNTIMES = {
    "onnx": (
        "onnxruntime",
        'session = onnxruntime.InferenceSession(str(folder / "{file}"))',
        "outputs = session.run(None, {{name: np.array(rows) for name, rows in given.items()}})[0]",
    ),
    "openvino": (
        "openvino",
        'model = openvino.compile_model(folder / "{file}")',
        "outputs = model({{name: np.array(rows) for name, rows in given.items()}})[0]",
    ),
}
"""By the beginning of a format's name: the package, and the lines that load a graph and run it."""


@dataclass(frozen=True)
class Exported:
    """What an example, and the model card, say of an export.

    Attributes:
        values: what config.json holds beside the shape: the arguments `extra` and `problem_type` of
            `save_model`.
        max_length: tokens at which a text is cut.
        pad: the id of the padding token and its name.
        mask: the name of the mask token, if there is one.
        token_types: whether they are an input.
        reading: of an encoder without a head.
        side: see `special_ids.truncation_side`.
    """

    format: FormatName
    head: Head | None
    values: Mapping[str, Any]
    max_length: int
    pad: tuple[int, str]
    mask: str | None
    token_types: bool
    reading: TextReading | None
    side: Side = "right"

    @property
    def reads_two(self) -> bool:
        """Whether its inputs are pairs of texts."""
        return isinstance(self.head, SpanHead) or bool(self.values.get(PAIRS))

    @property
    def kind(self) -> str:
        """What it computes: a key of `_READ`."""
        problem = self.values.get("problem_type")
        if isinstance(self.head, SpanHead):
            return "answers"
        if isinstance(self.head, TokenHead):
            return "tokens"
        if isinstance(self.head, MaskedLMHead):
            return "words"
        if not isinstance(self.head, SequenceHead):
            return "vectors"
        if problem == "regression" or (problem is None and self.head.classes == 1):
            return "values"
        return "labels" if problem == "multi_label_classification" else "classes"


def example(export: Exported) -> str:
    """The program: it predicts for the texts of its command line."""
    if export.format == "int8":
        return _of_brimful(export)
    graph = FORMATS[export.format].graph
    if graph:
        imports, body = _of_graph(export)
    elif export.format == "hf":
        imports, body = _of_transformers(export)
    else:
        imports, body = _of_sentences(export)
    standard = ["import json"] if '(folder / "config.json")' in "\n".join([*body, *_read(export)]) else []
    packages = dict.fromkeys(line.split()[1].partition(".")[0] for line in imports)
    head = f'"""What the model says: python example.py TEXT... It needs {_and(packages)}."""'
    standard += ["import sys", "from pathlib import Path"]
    lines = ["folder = Path(__file__).parent", *_texts(export), *body, *_read(export)]
    return "\n".join([head, "", *standard, "", *imports, "", *lines, ""])


def _of_brimful(export: Exported) -> str:
    """The program of the one format that Brimful alone computes."""
    if export.kind == "vectors":
        body = ["model = brimful.Encoder.load(folder)", "print(model.embed(texts).shape)"]
    else:
        given = {"answers": "[question], [text]", "tokens": "[text]"}.get(export.kind, "texts")
        if export.reads_two and export.kind != "answers":
            given = "*map(list, zip(*texts))"
        model = "model = brimful.TaskModel.load(folder)"
        body = [model, f"for row in model.predict({given}):", "    print(row)"]
    head = '"""What the model says: python example.py TEXT... It needs brimful."""'
    imports = ["import sys", "from pathlib import Path", "", "import brimful"]
    return "\n".join([head, "", *imports, "", "folder = Path(__file__).parent", *_texts(export), *body, ""])


def _and(names: Mapping[str, None]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _texts(export: Exported) -> list[str]:
    if export.kind == "answers":
        return ['question, text = sys.argv[1:3] or ("Who reads?", "Reading is what the model does.")']
    if export.kind == "tokens":
        return ['text = " ".join(sys.argv[1:]) or "A text with names in it."']
    if export.reads_two:
        return ['texts = [tuple(sys.argv[1:3]) or ("One text.", "The other text of a pair.")]']
    if export.kind == "words":
        return [f'texts = sys.argv[1:] or ["A text with a {export.mask} in it."]']
    texts = 'sys.argv[1:] or ["One text.", "Another text."]'
    if export.reading and export.reading.prompt and export.format not in ("sentence-transformers", "int8"):
        return [f"texts = [{export.reading.prompt!r} + text for text in {texts}]"]
    return [f"texts = {texts}"]


def _of_graph(export: Exported) -> tuple[list[str], list[str]]:
    name, load, run = next(lines for start, lines in _RUNTIMES.items() if export.format.startswith(start))
    file = FORMATS[export.format].file
    texts = {"answers": "[(question, text)]", "tokens": "[text]"}.get(export.kind, "texts")
    one = export.reads_two or texts != "texts"
    padding = f'tokenizer.enable_padding(pad_id={export.pad[0]}, pad_token="{export.pad[1]}")'
    masks = '"attention_mask": [each.attention_mask for each in encoded]'
    side = ', direction="left"' if export.side == "left" else ""
    return ["import numpy as np", f"import {name}", "from tokenizers import Tokenizer"], [
        'tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))',
        f"tokenizer.enable_truncation({export.max_length}{side})",
        *([] if one else [padding]),
        f"encoded = tokenizer.encode_batch({texts})",
        f'given = {{"input_ids": [each.ids for each in encoded], {masks}}}',
        *(['given["token_type_ids"] = [each.type_ids for each in encoded]'] if export.token_types else []),
        load.format(file=file),
        run.format(),
    ]


def _of_transformers(export: Exported) -> tuple[list[str], list[str]]:
    kind = f"AutoModel{'' if export.head is None else HEADS[type(export.head)]}"
    given = {"answers": "[question], [text]", "tokens": "[text]"}.get(export.kind, "texts")
    if export.reads_two and given == "texts":
        given = "*map(list, zip(*texts))"
    body = [
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f"model = {kind}.from_pretrained(folder)",
        f'encoded = tokenizer({given}, padding=True, truncation=True, return_tensors="pt")',
        "with torch.inference_mode():",
        "    found = model(**encoded)",
    ]
    if export.kind == "answers":
        body.append("outputs = torch.stack((found.start_logits, found.end_logits), -1).numpy()")
    elif export.kind != "vectors":
        two = isinstance(export.head, PretrainingHead)
        body.append(f"outputs = found.{'prediction_logits' if two else 'logits'}.numpy()")
    else:
        body += _POOLED[export.reading.pooling if export.reading else "mean"]
    if export.kind in ("tokens", "answers", "words"):
        body.append("encoded = encoded.encodings")
    imports = ["import numpy as np", "import torch", f"from transformers import {kind}, AutoTokenizer"]
    return imports, body


def _of_sentences(export: Exported) -> tuple[list[str], list[str]]:
    return ["import numpy as np", "from sentence_transformers import SentenceTransformer"], [
        "model = SentenceTransformer(str(folder))",
        "outputs = model.encode(texts)",
    ]


_POOLED: dict[TextPooling, list[str]] = {
    "first": ["outputs = found.last_hidden_state[:, 0].numpy()"],
    "mean": [
        'real = encoded["attention_mask"][:, :, None]',
        "outputs = ((found.last_hidden_state * real).sum(1) / real.sum(1)).numpy()",
    ],
    "max": [
        'real = encoded["attention_mask"][:, :, None]',
        "outputs = found.last_hidden_state.masked_fill(real == 0, -1e9).amax(1).numpy()",
    ],
}
_NAMES = 'labels = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("id2label", {})'


def _read(export: Exported) -> list[str]:
    """The lines that turn `outputs` into what is printed."""
    name = "labels.get(str({0}), {0})"
    if export.kind == "vectors":
        return [
            "print(outputs.shape, outputs.dtype)",
            "outputs = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)",
            "print(np.round(outputs @ outputs.T, 4))  # cosines of the texts with each other",
        ]
    if export.kind == "values":
        return [
            "for text, value in zip(texts, outputs[:, 0], strict=True):",
            '    print(round(float(value), 4), text, sep="\\t")',
        ]
    if export.kind == "classes":
        return [
            _NAMES,
            f"for text, row in zip(texts, outputs / {export.values.get(TEMPERATURE, 1.0)}, strict=True):",
            f'    print({name.format("row.argmax()")}, 1 / np.exp(row - row.max()).sum(), text, sep="\\t")',
        ]
    if export.kind == "labels":
        return [
            _NAMES,
            "for text, row in zip(texts, outputs, strict=True):  # above 0, a probability is above a half",
            '    print(*[labels.get(str(i), i) for i in np.flatnonzero(row > 0)], text, sep="\\t")',
        ]
    if export.kind == "tokens":
        return [
            _NAMES,
            "for (start, end), row in zip(encoded[0].offsets, outputs[0], strict=True):",
            f'    if end > start and (tag := {name.format("row.argmax()")}) != "O":',
            '        print(tag, text[start:end], start, end, sep="\\t")',
        ]
    if export.kind == "words":
        return [
            "for text, each, rows in zip(texts, encoded, outputs, strict=True):",
            f"    places = [i for i, token in enumerate(each.tokens) if token == {export.mask!r}]",
            '    print(text, [tokenizer.decode([row.argmax()]) for row in rows[places]], sep="\\t")',
        ]
    threshold = (export.values.get(SETTINGS) or {}).get("no_answer_threshold")
    answer = "text[encoded[0].offsets[start][0] : encoded[0].offsets[end][1]]"
    if threshold is not None:
        answer += f' if best.max() >= scores[0, 0] - {round(threshold, 4)} else ""'
    return [
        "inside = np.array(encoded[0].sequence_ids) == 1  # tokens of the text, not of the question",
        "scores = outputs[0, :, None, 0] + outputs[0, None, :, 1]",
        "best = np.where(np.triu(inside[:, None] & inside), scores, -np.inf)",
        "start, end = np.unravel_index(best.argmax(), best.shape)",
        f"print({answer})",
    ]
