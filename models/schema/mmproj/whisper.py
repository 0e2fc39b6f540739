"""Whisper's encoder inside multimodal models in llama.cpp's files (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.contract.architecture import Config, Key, Row, Stored, Weight, Whole
from ....runtime.contract.hyperparameter import COUNT, Integer
from ....runtime.contract.mmproj import PROJECTOR
from ....runtime.tensor.stored_tensor import StoredTensor
from .keys import LAYERS as MOST_LAYERS
from .keys import Fixed
from .vit import pair

STACK = 4
"""Frames that become one token in llama.cpp."""
LAYERS, NAME, BLOCK = "audio.layers", "audio.encoder.layers.{i}.", "a.blk.{i}."
POSITIONS = "audio.encoder.positions.weight"
LAYER = {
    "attn.q": "attn_q", "attn.k": "attn_k", "attn.v": "attn_v", "attn.o": "attn_out", "attn_norm": "ln1",
    "mlp_norm": "ln2", "mlp.up": "ffn_up", "mlp.down": "ffn_down",
}  # fmt: skip


class Column(Whole):
    """A vector that files store as a column, for a sum over time."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        if len(parts[0].shape) > 1 and parts[0].shape[1:] != (1,):
            raise ValueError(f"a tensor {list(parts[0].shape)} is not a column")
        return StoredTensor(parts[0].dtype, parts[0].shape[:1], parts[0].storage)

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [StoredTensor(whole.dtype, (*whole.shape, 1), whole.storage)]


def audio_keys(projector: str) -> tuple[Row, ...]:
    """Rows of the audio encoder's hyper-parameters for a projector type of llama.cpp."""
    return (
        Fixed(PROJECTOR, PROJECTOR, projector),
        Fixed("has_audio_encoder", "has_audio_encoder", True),
        Key("text.hidden", (), "audio.projection_dim", kind=COUNT),
        Key("audio.hidden", (), "audio.embedding_length", kind=COUNT),
        Key("audio.intermediate", (), "audio.feed_forward_length", kind=COUNT),
        Key("audio.layers", (), "audio.block_count", kind=MOST_LAYERS),
        Key("audio.heads", (), "audio.attention.head_count", kind=COUNT, at_most=("audio.hidden",)),
        Key("audio.bands", (), "audio.num_mel_bins", kind=Integer(1, 1024)),
        Fixed("eps", "audio.attention.layer_norm_epsilon", 1e-5),
        Fixed("stack", "audio.projector.stack_factor", STACK),
    )


def whisper_weights() -> tuple[Weight, ...]:
    """The rows of the encoder."""
    kernels = (
        row
        for number in (1, 2)
        for row in (
            Weight(f"audio.encoder.conv{number}.weight", gguf=f"a.conv1d.{number}.weight"),
            Weight(f"audio.encoder.conv{number}.bias", gguf=Stored((f"a.conv1d.{number}.bias",), Column())),
        )
    )
    return (
        *kernels,
        Weight(POSITIONS, gguf="a.position_embd.weight"),
        *(row for own, name in LAYER.items() for row in pair(f"{NAME}{own}", f"{BLOCK}{name}", layers=LAYERS)),
        *pair("audio.encoder.norm", "a.post_ln"),
    )


def taken_positions(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Hyper-parameters without a key: the number of positions, and the activations."""
    return {"audio.source_positions": weights[POSITIONS].shape[0], "audio.act": "gelu", "act": "gelu"}


def stacked(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """Why llama.cpp computes something else with an encoder; empty if it does not."""
    if config.values["audio.intermediate"] != STACK * config.values["audio.hidden"]:
        return f"it makes a token of {STACK} frames, and the model of another number"
    if {config.values["audio.act"], config.values["act"]} != {"gelu"}:
        return "it has no other activation than GELU in this encoder"
    return ""


def whisper_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json."""
    return {
        "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": config.values.get("audio.bands", 128),
        "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "chunk_length": 30,
        "n_samples": 480000, "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0,
        "return_attention_mask": False, "dither": 0.0,
    }  # fmt: skip
