"""A folder's texts are cut, prompted, pooled and scaled as sentence-transformers and AutoTokenizer do it."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import brimful
from brimful import BrimfulError, Encoder, TaskModel, export
from brimful.hf.folders import save_model
from brimful.hf.model_folder import FLAGS
from brimful.model.heads import SequenceHead
from builders.encoders import pair_template, small, word_tokenizer
from builders.http_app import asked

WORDS = [f"{letter}{number}" for number in range(90) for letter in "wwwW"]
LENGTHS = (0, 1, 2, 5, 8, 9, 10, 11, 13, 17, 25, 60, 200)
POSITIONS = 40


def texts_of(rng: Random) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=count)) for count in LENGTHS]


def changed(path: Path, **values: Any) -> None:
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(found | values))


def base_folder(rng: Random, folder: Path, *, classes: int = 0) -> Encoder:
    """A folder of a random family, whose tokenizer has a random length and side."""
    family = rng.choice(("bert", "roberta", "modern"))
    torch.manual_seed(rng.randrange(1 << 30))
    encoder = small(family, max_length=POSITIONS, layers=2, initializer_range=0.08)
    encoder.tokenizer = word_tokenizer(family)
    head = SequenceHead(encoder, classes) if classes else None
    save_model(folder, encoder, head, [f"c{n}" for n in range(classes)] or None)
    config = folder / "tokenizer_config.json"
    values = json.loads(config.read_text())
    del values["model_max_length"]
    if family == "roberta" or rng.random() < 0.7:  # whose positions transformers counts with those of padding
        values[rng.choice(("model_max_length", "max_len"))] = rng.choice((8, 13, 20, POSITIONS))
    if side := rng.choice(("left", "right", None)):
        values["truncation_side"] = side
    elif rng.random() < 0.5:
        encoder.tokenizer.enable_truncation(9, direction="left")
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
        encoder.tokenizer.no_truncation()
    config.write_text(json.dumps(values))
    return encoder


def sentence_folder(rng: Random, folder: Path) -> Path:
    """And one of sentence-transformers, with random modules and settings."""
    width = base_folder(rng, folder).config.hidden_size
    settings: dict[str, Any] = {"do_lower_case": rng.random() < 0.4}
    if rng.random() < 0.6:
        settings["max_seq_length"] = rng.choice((None, 7, 12, 30, POSITIONS))
    changed(folder / "sentence_bert_config.json", **settings)
    mode = rng.choice(("mean", "cls", "max"))
    pooling: dict[str, Any] = {"embedding_dimension": width, "pooling_mode": mode}
    if rng.random() < 0.5:
        flags = {flag: each == mode for each, flag in FLAGS.items()}
        pooling = {"word_embedding_dimension": width, **flags}
        if mode == "mean" and rng.random() < 0.3:
            pooling = {"word_embedding_dimension": width, FLAGS["max"]: False}
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    kinds |= {"2_Normalize": "Normalize"} if rng.random() < 0.5 else {}
    for path in kinds:
        (folder / path).mkdir(exist_ok=True)
    changed(folder / "1_Pooling" / "config.json", **pooling)
    types = [(path, f"sentence_transformers.models.{kind}") for path, kind in kinds.items()]
    modules = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(types)]
    (folder / "modules.json").write_text(json.dumps(modules))
    prompts = {"passage": "w7 W8 w9 ", "query": "w5"}
    name = rng.choice(("passage", "query", "document", None, None))
    if name or rng.random() < 0.5:
        changed(folder / "config_sentence_transformers.json", prompts=prompts, default_prompt_name=name)
    return folder


def vectors_of_predict(folder: Path, texts: list[str], place: Path) -> np.ndarray:
    rows = place.with_suffix(".jsonl")
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = place.with_suffix(".npy")
    brimful.predict(model=str(folder), input=str(rows), output=str(out), precision="fp32")
    return np.load(out)


def theirs_of(folder: Path) -> Any:
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="the reference: .[dev] has it"
    )
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", range(0, 24, 2))
def test_vectors_are_those_of_sentence_transformers(first, tmp_path):
    wanted: dict[str, np.ndarray] = {}
    for seed in (first, first + 1):
        rng = Random(seed)
        folder, texts = sentence_folder(rng, tmp_path / f"f{seed}"), texts_of(Random(0))
        theirs = theirs_of(folder)
        wanted[folder.name] = theirs.encode(texts)
        encoder = Encoder.load(folder)
        close = {"atol": 1e-5, "rtol": 1e-5, "err_msg": f"seed {seed}: {theirs}"}
        np.testing.assert_allclose(encoder.embed(texts, precision="fp32"), wanted[folder.name], **close)
        encoder.save(tmp_path / "again")
        again = Encoder.load(tmp_path / "again").embed(texts, precision="fp32")
        np.testing.assert_allclose(again, wanted[folder.name], **close)
        found = vectors_of_predict(folder, texts, tmp_path / "texts")
        np.testing.assert_allclose(found, wanted[folder.name], **close)
    folders = sorted(path for path in tmp_path.iterdir() if path.name in wanted)
    with asked(*folders, precision="fp32") as server:
        for folder in folders:
            answer = server.ask("/v1/embeddings", input=texts, model=folder.name)
            found = np.array([each["embedding"] for each in answer["data"]], dtype=np.float32)
            np.testing.assert_allclose(found, wanted[folder.name], atol=1e-5, rtol=1e-5)


def pooled_vectors(folder: Path, theirs: Any, ids: list[list[int]]) -> np.ndarray:
    """The vectors of AutoModel's hidden states, by the modules behind the first."""
    model, vectors = AutoModel.from_pretrained(folder), []
    for row in ids:
        with torch.inference_mode():
            features = {"token_embeddings": model(input_ids=torch.tensor([row])).last_hidden_state}
            for module in list(theirs)[1:]:
                features = module(features | {"attention_mask": torch.ones(1, len(row))})
        vectors.append(features["sentence_embedding"][0].numpy())
    return np.array(vectors)


def graph_vectors(folder: Path, ids: list[list[int]]) -> np.ndarray:
    graph, vectors = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx")), []
    for row in ids:
        inputs = {"input_ids": np.array([row]), "attention_mask": np.ones((1, len(row)), dtype=np.int64)}
        vectors.append(graph.run(None, inputs)[0][0])
    return np.array(vectors)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
@pytest.mark.parametrize(
    "form", ["sentence-transformers", "hf", pytest.param("onnx", marks=pytest.mark.slow)]
)
def test_exports_cut_pool_and_scale_like_the_folder(form, seed, tmp_path):
    folder, texts = sentence_folder(Random(100 + seed), tmp_path / "folder"), texts_of(Random(0))
    theirs, out = theirs_of(folder), tmp_path / "out"
    prompt = theirs._resolve_prompt(None, None) or ""
    export(run=str(folder), out=str(out), format=form)
    ids = [theirs.preprocess([text], prompt=prompt)["input_ids"][0].tolist() for text in texts]
    found = []
    if form == "sentence-transformers":
        found = [theirs_of(out).encode(texts)]
    else:
        tokenizer = AutoTokenizer.from_pretrained(out)
        assert [tokenizer(prompt + text, truncation=True)["input_ids"] for text in texts] == ids, theirs
    if form == "hf":
        found = [pooled_vectors(out, theirs, ids)]
    if form == "onnx":
        found = [graph_vectors(out, ids), vectors_of_predict(out, texts, tmp_path / "texts")]
    for vectors in found:
        np.testing.assert_allclose(vectors, theirs.encode(texts), atol=1e-5, rtol=1e-5, err_msg=str(theirs))


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", range(0, 12, 2))
def test_classifiers_read_what_autotokenizer_keeps(first, tmp_path):
    """Of texts and of pairs, whose longest loses tokens first; and `truncated_at` is where they were cut."""
    folders, kept = {}, {}
    for seed in (first, first + 1):
        rng, folder = Random(seed), tmp_path / f"c{seed}"
        encoder = base_folder(rng, folder, classes=3)
        pairs = encoder.config.variant is None and rng.random() < 0.6
        if pairs:
            encoder.tokenizer.post_processor = pair_template()
            encoder.tokenizer.save(str(folder / "tokenizer.json"))
        changed(folder / "config.json", text_pairs=pairs)
        texts = texts_of(rng)
        second = rng.sample(texts, len(texts)) if pairs else None
        theirs = AutoTokenizer.from_pretrained(folder)
        most = min(theirs.model_max_length, POSITIONS)
        given = [(text,) if second is None else (text, second[row]) for row, text in enumerate(texts)]
        lists = [[[text] for text in each] for each in given]  # alone, an empty second text would be none
        rows = [theirs(*each, truncation=True, max_length=most, return_tensors="pt") for each in lists]
        model = TaskModel.load(folder)
        data = model.encode(model.task.from_texts(texts, second))
        for ours, row in zip(data.examples.tokens, rows, strict=True):
            assert ours.tolist() == row["input_ids"][0].tolist()
        peer = AutoModelForSequenceClassification.from_pretrained(folder)
        with torch.inference_mode():
            logits = torch.cat([peer(**row).logits for row in rows]).numpy()
        np.testing.assert_allclose(model.outputs(data.examples, "fp32"), logits, atol=1e-5)
        folders[folder], kept[folder] = given, (theirs, most)
    with asked(*folders, precision="fp32") as server:
        for folder, given in folders.items():
            tokenizer, most = kept[folder]
            left = tokenizer.truncation_side == "left"
            texts = {"texts": [each[0] for each in given]}
            texts |= {"texts_b": [each[1] for each in given]} if len(given[0]) == 2 else {}
            results = server.ask("/v1/classify", model=folder.name, **texts)["results"]
            for each, result in zip(given, results, strict=True):
                read = tokenizer(*[[text] for text in each], truncation=True, max_length=most)
                ids, sides = np.array(read["input_ids"][0]), np.array(read.sequence_ids(0))
                for number, name in enumerate(("truncated_at", "truncated_at_b")[: len(each)]):
                    whole = tokenizer(each[number], add_special_tokens=False)["input_ids"]
                    mine = ids[sides == number].tolist()
                    at = result.get(name)
                    assert (at is None) == (len(mine) == len(whole)), (folder, result)
                    if at is not None:
                        part = each[number][at:] if left else each[number][:at]
                        assert tokenizer(part, add_special_tokens=False)["input_ids"] == mine


@pytest.mark.parametrize(
    ("file", "values", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "its pooling is lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "its pooling is cls and mean"),
        ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt"),
        ("config_sentence_transformers.json", {"default_prompt_name": "other"}, "none of its prompts"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"x": 4}}}, "processing_kwargs"),
        ("modules.json", "Dense", "its modules are Transformer, Pooling, Dense"),
    ],
)
def test_what_is_not_computed_is_refused(file, values, said, tmp_path, capsys):
    folder = tmp_path / "folder"
    encoder = small("bert", layers=1)
    encoder.tokenizer = word_tokenizer()
    modules = {"pooling": "mean", "max_length": 20, "prompt": "w1 "}
    save_model(folder, encoder, modules=modules)
    if values == "Dense":
        modules = json.loads((folder / file).read_text())
        modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "models.Dense"})
        (folder / file).write_text(json.dumps(modules))
    else:
        changed(folder / file, **values)
    loaded = Encoder.load(folder)
    with pytest.raises(BrimfulError, match=f'{said}.*; pooling="mean"'):
        loaded.embed(["w1 w2"])
    with pytest.raises(BrimfulError, match=f"{said}.*; --pooling mean"):
        vectors_of_predict(folder, ["w1"], tmp_path / "out")
    with pytest.raises(BrimfulError, match=f"{said}.*; --format hf"):
        export(run=str(folder), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert loaded.embed(["w1 w2"], "mean").shape == (1, 48)
    assert said in capsys.readouterr().err
    if file == "modules.json":
        assert "2_Dense" in export(run=str(folder), out=str(tmp_path / "hf"), format="hf")["left_out"]


def test_a_side_that_is_none_is_refused(tmp_path):
    base_folder(Random(0), tmp_path / "folder")
    changed(tmp_path / "folder" / "tokenizer_config.json", truncation_side="top")
    with pytest.raises(BrimfulError, match=r'truncation_side of .* is "top"; write right or left'):
        Encoder.load(tmp_path / "folder")
