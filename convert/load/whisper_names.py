"""Whisper's files of OpenAI, whisper.cpp and CTranslate2 under the names and with the configuration of transformers.

OpenAI's checkpoints and whisper.cpp's files have the same names; the latter store biases of convolutions as columns,
and the vocabulary. CTranslate2 joins the projections of queries, keys and values; its heads are in variables.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...models.pipelines.audio.transcription.speech_tokens import BASE, GENERATION, HEADS, special_names
from ...models.tokenizer.core.vocabulary import letters_bytes
from ...models.tokenizer.readers.locate import json_value, settings, text
from ...runtime.base.errors import FormatError
from ...runtime.base.string_array import StringArray
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.storage import Derived, Held, Storage
from ...runtime.tensor.stored_tensor import StoredTensor

FILTERS = "mel_filters"
"""Weight of files of whisper.cpp that is not a parameter of the model."""
CONFIG, TOKENIZER, TIKTOKEN = "config.json", "tokenizer_config.json", "whisper.tiktoken"
OPENAI = "dims."
PREFIXES = ("whisper.", OPENAI)
"""Prefixes of sizes in files of whisper.cpp and OpenAI, and in conversions of them."""
SIZES = (
    "n_vocab", "n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx", "n_text_state",
    "n_text_head", "n_text_layer",
)  # fmt: skip
BLOCKS = {
    "attn_ln": "self_attn_layer_norm",
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "cross_attn.query": "encoder_attn.q_proj",
    "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
}
"""Names of transformers by OpenAI's, within a layer."""
WHOLE = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "decoder.token_embedding.weight": "decoder.embed_tokens.weight",
    "encoder.ln_post.weight": "encoder.layer_norm.weight",
    "encoder.ln_post.bias": "encoder.layer_norm.bias",
    "decoder.ln.weight": "decoder.layer_norm.weight",
    "decoder.ln.bias": "decoder.layer_norm.bias",
}
LAYER = re.compile(r"(encoder|decoder)\.blocks\.(\d{1,9})\.(.+)\.(weight|bias)")
CT2_NORMS = {"gamma": "weight", "beta": "bias"}
CT2_LINEAR = {
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_2": "encoder_attn.out_proj",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
CT2_JOINED = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}
CT2_LAYER_NORMS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
}
CT2_LAYER = re.compile(r"(encoder|decoder)/layer_(\d{1,9})/(.+)/(weight|bias|gamma|beta)")
CT2_WHOLE = {
    "encoder/position_encodings/encodings": "encoder.embed_positions.weight",
    "decoder/position_encodings/encodings": "decoder.embed_positions.weight",
    "decoder/embeddings/weight": "decoder.embed_tokens.weight",
    "encoder/layer_norm/gamma": "encoder.layer_norm.weight",
    "encoder/layer_norm/beta": "encoder.layer_norm.bias",
    "decoder/layer_norm/gamma": "decoder.layer_norm.weight",
    "decoder/layer_norm/beta": "decoder.layer_norm.bias",
    **{f"encoder/conv{i}/{part}": f"encoder.conv{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
}
CT2_EMBEDDING, CT2_HEAD = "decoder/embeddings/weight", "decoder/projection/weight"
CT2_NAMES = {**{theirs: f"model.{ours}" for theirs, ours in CT2_WHOLE.items()}, CT2_HEAD: "proj_out.weight"}
CT2_LISTS = {"suppress_ids": "suppress_tokens", "suppress_ids_begin": "begin_suppress_tokens", HEADS: HEADS}
"""Lists in the config.json next to CTranslate2's files -> transformers' names in generation_config.json."""


def transformers_names(graph: Graph) -> Graph:
    """The same model as transformers has it; `graph` itself for other files, and vocabularies that no published model
    has."""
    prefix = next((each for each in PREFIXES if f"{each}n_mels" in graph.metadata), OPENAI)
    if "decoder.token_embedding.weight" in graph.weights and f"{prefix}n_mels" in graph.metadata:
        sizes, rename = _sizes(graph, prefix), _renamed
    elif CT2_EMBEDDING in graph.weights and _is_ctranslate2(graph):
        sizes, rename = _ct2_sizes(graph), _of_ctranslate2
    else:
        return graph
    return graph if sizes["n_vocab"] < BASE else _completed(graph, dict(rename(graph)), sizes)


def origins(graph: Graph) -> dict[str, str]:
    """Canonical name -> name in the file, of renamed weights that are one tensor of the file."""
    if _is_ctranslate2(graph):
        return {ours: theirs for theirs, ours in CT2_NAMES.items() if _is_own(graph.weights, theirs)}
    return {f"model.{renamed(name)}": name for name in graph.weights}


def _is_ctranslate2(graph: Graph) -> bool:
    """Whether a file is CTranslate2's Whisper, or has its variables."""
    return graph.metadata.get("ctranslate2.spec") == "WhisperSpec"


def renamed(name: str) -> str:
    """Transformers' name of a weight that has OpenAI's, without ``model.``."""
    layer = LAYER.fullmatch(name)
    if layer and layer[3] in BLOCKS:
        return f"{layer[1]}.layers.{layer[2]}.{BLOCKS[layer[3]]}.{layer[4]}"
    return WHOLE.get(name, name)


def _renamed(graph: Graph) -> Iterator[tuple[str, StoredTensor]]:
    for name, tensor in graph.weights.items():
        if name == FILTERS:
            continue
        if name.endswith(".bias") and len(tensor.shape) == 2 and tensor.shape[1] == 1:
            tensor = StoredTensor(tensor.dtype, tensor.shape[:1], tensor.storage)
        yield f"model.{renamed(name)}", tensor


def _sizes(graph: Graph, prefix: str) -> dict[str, int]:
    path = graph.files[0] if graph.files else None
    found = {}
    for name in SIZES:
        value = graph.metadata.get(prefix + name)
        value = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError("E-WHISPER-SIZE", path, f"{name} is {value!r}", expected="a positive integer")
        found[name] = value
    return found


def _completed(graph: Graph, weights: dict[str, StoredTensor], sizes: Mapping[str, int]) -> Graph:
    """A graph with config.json, and the tokenizer where the file has the vocabulary."""
    attachments: dict[str, Storage] = {
        CONFIG: _json(_config(sizes)),
        **{name: held for name, held in graph.attachments.items() if name != CONFIG},
    }
    said = settings(graph, CONFIG) if _is_ctranslate2(graph) else {}
    lists = {ours: said[theirs] for theirs, ours in CT2_LISTS.items() if said.get(theirs)}
    if lists and GENERATION not in attachments:
        attachments[GENERATION] = _json(lists)
    metadata = dict(graph.metadata)
    names = special_names(sizes["n_vocab"])
    first = sizes["n_vocab"] - len(names)
    tokens = metadata.pop("tokenizer.ggml.tokens", None)
    tokens = _listed_tokens(graph, first) if tokens is None else tokens
    if isinstance(tokens, list | StringArray) and len(tokens):
        lines = (
            b"%s %d" % (base64.b64encode(token if isinstance(token, bytes) else str(token).encode()) or b"=", rank)
            for rank, token in enumerate(tokens)
        )
        attachments[TIKTOKEN] = Held(b"\n".join(lines))
    added = {str(first + index): {"content": name, "special": True} for index, name in enumerate(names)}
    if "tokenizer.json" not in attachments:
        attachments[TOKENIZER] = _json({"tokenizer_class": "WhisperTokenizer", "added_tokens_decoder": added})
    return dataclasses.replace(graph, weights=weights, metadata=metadata, attachments=attachments)


def _listed_tokens(graph: Graph, count: int) -> list[bytes]:
    """The first `count` tokens in the vocabulary next to a file of CTranslate2, where no tokenizer.json is."""
    if "tokenizer.json" in graph.attachments or not _is_ctranslate2(graph):
        return []
    listed = json_value(graph, "vocabulary.json", "E-TOKENIZER-JSON")
    if listed is None and "vocabulary.txt" in graph.attachments:
        listed = text(graph, "vocabulary.txt").split("\n")
    valid = isinstance(listed, list) and len(listed) >= count and all(isinstance(token, str) for token in listed)
    return [letters_bytes(token) for token in listed[:count]] if valid else []


def _json(value: Mapping[str, Any]) -> Held:
    return Held(json.dumps(value).encode())


def _config(sizes: Mapping[str, int]) -> dict[str, Any]:
    width, end = sizes["n_audio_state"], sizes["n_vocab"] - len(special_names(sizes["n_vocab"]))
    return {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "is_encoder_decoder": True,
        "vocab_size": sizes["n_vocab"], "num_mel_bins": sizes["n_mels"], "d_model": width,
        "encoder_layers": sizes["n_audio_layer"], "decoder_layers": sizes["n_text_layer"],
        "encoder_attention_heads": sizes["n_audio_head"], "decoder_attention_heads": sizes["n_text_head"],
        "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width, "activation_function": "gelu",
        "max_source_positions": sizes["n_audio_ctx"], "max_target_positions": sizes["n_text_ctx"],
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": end + 1,
    }  # fmt: skip


def _of_ctranslate2(graph: Graph) -> Iterator[tuple[str, StoredTensor]]:
    weights = graph.weights
    for name in weights:
        if name in CT2_NAMES:
            if _is_own(weights, name):
                yield CT2_NAMES[name], _dequantized(weights, name)
            continue
        layer = CT2_LAYER.fullmatch(name)
        if layer is None:
            continue
        side, number, block, part = layer.groups()
        before, part = f"model.{side}.layers.{number}.", CT2_NORMS.get(part, part)
        if block in CT2_JOINED:
            for piece, projection in zip(_split(weights, name, len(CT2_JOINED[block])), CT2_JOINED[block], strict=True):
                if part == "weight" or not projection.endswith("k_proj"):
                    yield f"{before}{projection}.{part}", piece
        elif block in CT2_LINEAR or block in CT2_LAYER_NORMS:
            yield f"{before}{CT2_LINEAR.get(block) or CT2_LAYER_NORMS[block]}.{part}", _dequantized(weights, name)


def _is_own(weights: Mapping[str, StoredTensor], name: str) -> bool:
    """Whether a file has a variable that is no alias of the embedding."""
    return name in weights and (name != CT2_HEAD or weights[name] is not weights.get(CT2_EMBEDDING))


def _split(weights: Mapping[str, StoredTensor], name: str, count: int) -> list[StoredTensor]:
    whole = _dequantized(weights, name)
    rows = whole.shape[0] // count
    return [whole[start : start + rows] for start in range(0, rows * count, rows)]


def _dequantized(weights: Mapping[str, StoredTensor], name: str) -> StoredTensor:
    """A variable as f32; codes are dequantized when they are read."""
    import numpy

    codes, scales = weights[name], weights.get(f"{name}_scale")
    if scales is None:
        return codes
    columns = codes.shape[-1]
    width = codes.dtype.block_nbytes

    def read(start: int, stop: int) -> memoryview:
        first, last = start // 4, stop // 4
        values = numpy.frombuffer(codes.storage.read(width * first, width * last), f"<i{width}").astype(numpy.float32)
        factors = numpy.asarray(scales.cast("f32").numpy(), numpy.float32).reshape(-1)
        rows = numpy.arange(first, last) // columns if factors.size > 1 else 0
        return (values / factors[rows]).astype(numpy.float32).view(numpy.uint8).data

    return StoredTensor(F32, codes.shape, Derived(4 * codes.count, 4 * columns, read))


def _ct2_sizes(graph: Graph) -> dict[str, int]:
    path = graph.files[0] if graph.files else None
    weights = graph.weights

    def shape(name: str, axis: int) -> int:
        if name not in weights or len(weights[name].shape) <= axis:
            raise FormatError("E-WHISPER-SIZE", path, f"the model lacks the variable {name}")
        return weights[name].shape[axis]

    def heads(side: str) -> int:
        name = f"{side}/num_heads"
        if name not in weights or weights[name].count != 1:
            raise FormatError("E-WHISPER-SIZE", path, f"the model lacks the variable {name}")
        return int(weights[name].numpy().reshape(-1)[0])

    layers = {
        side: len({each[2] for name in weights if (each := CT2_LAYER.fullmatch(name)) and each[1] == side})
        for side in ("encoder", "decoder")
    }
    return {
        "n_vocab": shape("decoder/embeddings/weight", 0),
        "n_mels": shape("encoder/conv1/weight", 1),
        "n_audio_ctx": shape("encoder/position_encodings/encodings", 0),
        "n_audio_state": shape("decoder/embeddings/weight", 1),
        "n_audio_head": heads("encoder"),
        "n_audio_layer": layers["encoder"],
        "n_text_ctx": shape("decoder/position_encodings/encodings", 0),
        "n_text_state": shape("decoder/embeddings/weight", 1),
        "n_text_head": heads("decoder"),
        "n_text_layer": layers["decoder"],
    }
