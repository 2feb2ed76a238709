"""A small model with random weights for each task. They know the words w0 to w89 and read 32 tokens."""

import torch

from brimful import TaskModel
from brimful.hf.text_encoder import TextEncoder
from brimful.model.heads import SequenceHead, SpanHead, TokenHead
from brimful.tasks.classification import Classification
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.question_answering import QuestionAnswering
from brimful.tasks.regression import Regression
from brimful.tasks.token_classification import TokenClassification
from builders.encoders import pair_template, small, word_tokenizer

SPANS = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def new_encoder(kind: str = "bert", *, pairs: bool = False) -> TextEncoder:
    torch.manual_seed(2)
    encoder = TextEncoder(small(kind, vocabulary_size=95, layers=2).config)
    encoder.tokenizer = word_tokenizer(kind)
    if pairs:
        encoder.tokenizer.post_processor = pair_template()
    return encoder


def task_model(task: str) -> TaskModel:
    encoder = new_encoder("modern" if task == "regression" else "bert", pairs=task == "question-answering")
    if task == "classification":
        head = SequenceHead(encoder, 3)
        return TaskModel(Classification(["a", "b", "c"]), encoder, head, 32, 8, temperature=1.7, pairs=False)
    if task == "mean":
        head = SequenceHead(encoder, 3, pooling="mean")
        return TaskModel(Classification(["a", "b", "c"]), encoder, head, 32)
    if task == "multi-label":
        return TaskModel(MultiLabel(["x", "y"]), encoder, SequenceHead(encoder, 2), 32)
    if task == "regression":
        return TaskModel(Regression(), encoder, SequenceHead(encoder, 1), 32, 4)
    if task == "token-classification":
        return TaskModel(TokenClassification(SPANS), encoder, TokenHead(encoder, 5), 32, 8)
    return TaskModel(QuestionAnswering(0.1), encoder, SpanHead(encoder), 32, 8)
