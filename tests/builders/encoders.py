"""Small encoders, random rows, and the same models in `transformers`."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert

from brimful import Encoder
from brimful.data.batch import PackedBatch, pack
from brimful.hf.tensor_names import to_hf
from brimful.model.shape import EncoderConfig

VOCABULARY = 100
ARCHITECTURES = ["bert", "prenorm", "modern"]
MODELS = [*ARCHITECTURES, "roberta", "electra"]


def small(model: str, **changes) -> Encoder:
    """A small encoder with weights large enough for attention to be far from uniform."""
    values = {"architecture": model, "vocabulary_size": VOCABULARY, "max_length": 128}
    values |= {"hidden_size": 48, "layers": 4, "heads": 3, "intermediate_size": 80}
    values |= {"initializer_range": 0.15, "norm_eps": 1e-12}
    if model == "modern":
        values |= {"norm_eps": 1e-5, "local_attention": 16, "global_every": 3, "rope_theta": 160_000.0}
    if model == "roberta":
        bert = {"architecture": "bert", "variant": "roberta"}
        values |= bert | {"norm_eps": 1e-5, "segments": 1, "pad_id": 1}
    if model == "electra":
        values |= {"architecture": "bert", "variant": "electra", "embedding_size": 24}
    return Encoder(EncoderConfig(**(values | changes)))


def peer_class(config: EncoderConfig) -> transformers.PreTrainedModel:
    """The transformers model of a configuration, with initial weights of its own."""
    shared = {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "pad_token_id": config.pad_id,
        "initializer_range": config.initializer_range,
    }
    if config.architecture == "modern":
        tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
        layers = {"local_attention": config.local_attention, "max_position_embeddings": config.max_length}
        every = config.global_every
        modern = transformers.ModernBertConfig(**shared, **tokens, **layers, global_attn_every_n_layers=every)
        return transformers.ModernBertModel(modern)
    name = {"bert": "Bert", "prenorm": "MegatronBert"}[config.architecture]
    name = {None: name, "electra": "Electra"}.get(config.variant, "Roberta")
    if name == "Electra":
        shared["embedding_size"] = config.embedding_width
    shared |= {"type_vocab_size": config.segments, "layer_norm_eps": config.norm_eps}
    shared |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    length = config.position_offset + config.max_length
    their_config = getattr(transformers, f"{name}Config")(**shared, max_position_embeddings=length)
    options = {} if name == "Electra" else {"add_pooling_layer": False}
    return getattr(transformers, f"{name}Model")(their_config, **options)


def peer(encoder: Encoder) -> transformers.PreTrainedModel:
    """The transformers model of an encoder's configuration and weights."""
    model = peer_class(encoder.config)
    model.load_state_dict(to_hf(encoder, encoder.config), strict=True)
    return model.to(encoder.embedding.weight.dtype)


def random_row(lengths: list[int], filler: int = 0, pad: int = 0) -> PackedBatch:
    """Sequences of random tokens; neither 0 nor 1 is among them, which are the padding tokens here."""
    sequences = [torch.randint(2, VOCABULARY, (length,)).numpy() for length in lengths]
    segments = [torch.randint(0, 2, (length,)).numpy() for length in lengths]
    slots = {"slots": sum(lengths) + filler, "sequence_slots": len(lengths) + 3 + filler // 128}
    return pack(sequences, segments=segments, max_length=128, pad=pad, **slots)


def padded(batch: PackedBatch, pad: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """The same batch for transformers, and which of its places are tokens."""
    lengths = torch.tensor(batch.lengths[: batch.real_sequences])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids, types = torch.full(real.shape, pad), torch.zeros_like(real, dtype=torch.long)
    ids[real] = batch.tokens[: batch.real_tokens].long()
    types[real] = batch.segments[: batch.real_tokens].long()
    return {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": types}, real


def run_peer(model, batch: PackedBatch, **options):
    inputs, real = padded(batch, model.config.pad_token_id)
    if getattr(model.config, "type_vocab_size", 1) == 1:
        del inputs["token_type_ids"]
    return model(**inputs, **options), real


def rotate_in_full(q, k, cos, sin, unsqueeze_dim=1):
    """transformers' apply_rotary_pos_emb without its detour through float32."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = modeling_modernbert.rotate_half
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def pair_template() -> processors.TemplateProcessing:
    """BERT's special tokens around texts and pairs, in a vocabulary that begins with [PAD], [UNK], [CLS]."""
    texts = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    return processors.TemplateProcessing(**texts, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])


def word_tokenizer(model_name: str = "bert", words: int = 90) -> Tokenizer:
    """A tokenizer of so many words with the special tokens that go with a model."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    cls, sep, unknown = "[CLS]", "[SEP]", "[UNK]"
    if model_name == "roberta":
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        cls, sep, unknown = "<s>", "</s>", "<unk>"
    ids = {word: index for index, word in enumerate([*special, *(f"w{index}" for index in range(words))])}
    tokenizer = Tokenizer(models.WordLevel(ids, unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = [(cls, ids[cls]), (sep, ids[sep])]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{cls} $A {sep}", special_tokens=names)
    return tokenizer
