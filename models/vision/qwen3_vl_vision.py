"""Image encoder of Qwen3-VL (Bai et al. 2025, arXiv:2511.21631): interpolated learned positions besides rotary ones,
and features of several layers, which the language model adds after its first layers (DeepStack)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.decoder import DEEPSTACK
from ..layers.packed_patches.patch_encoder import PatchEncoder, patch_norm
from ..pipelines.image.image_tasks import run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES
from ..schema.patches.encoder import encoder_keys, encoder_weights, merger_weights

MERGER = {"norm": "norm", "up": "linear_fc1", "down": "linear_fc2"}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """FormatError for positions that do not form a square, and for layers that the encoder does not have."""
    if math.isqrt(config.positions) ** 2 != config.positions:
        why = f"{config.positions:,} learned positions are not a square grid"
        raise FormatError("E-ARCH-SHAPE", config.path, why, hint="Correct num_position_embeddings in config.json")
    if any(i >= config.layers for i in config.deepstack):
        why = f"deepstack_visual_indexes names layers of an encoder of {config.layers} layers: {config.deepstack}"
        raise FormatError("E-ARCH-KEY", config.path, why, hint="Correct it in config.json")


def vectors(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``pooler_output`` and ``deepstack_features.J``, [tokens, width of the text]."""
    net = PatchEncoder(graph, config, weights, config.merge)
    side = math.isqrt(config.positions)
    x = net.Add(net.embedded(), net.grid.interpolated(net.vector("positions.weight"), side, align_corners=True))
    hidden = list(net.layers(x, patch_norm, lambda i: net.in_frames()))
    net.output("pooler_output", net.merged(hidden[-1], "merger", patch_norm))
    for j, i in enumerate(config.deepstack):
        net.output(f"{DEEPSTACK}.{j}", net.merged(hidden[i], f"deepstack.{j}", patch_norm, norm_first=False))


ARCHITECTURES = (
    Architecture(
        "qwen3_vl_vision",
        "Qwen3-VL image encoder",
        ("qwen3_vl_vision", "qwen3_vl"),
        (),
        (
            *encoder_keys(
                "hidden_size",
                "out_hidden_size",
                Key("intermediate", "intermediate_size", (), 4304, COUNT),
                "gelu_tanh",
                16,
            ),
            Key("positions", "num_position_embeddings", (), 2304, COUNT),
            Key("deepstack", "deepstack_visual_indexes", (), [8, 16, 24], Listed(SIZE)),
            Key("deepstack_layers", (), (), lambda config: len(config.deepstack)),
        ),
        (
            Weight("positions.weight", "pos_embed.weight", shape=("positions", "hidden")),
            *encoder_weights({"up": "linear_fc1", "down": "linear_fc2"}),
            *merger_weights("merger", "merger", MERGER),
            *(
                replace(row, layers="deepstack_layers")
                for row in merger_weights("deepstack.{i}", "deepstack_merger_list.{i}", MERGER, norm_first=False)
            ),
        ),
        (Task(IMAGE_FEATURES, {MODEL: vectors}, run_image_model),),
        settle=settle,
        prefixes=("visual.",),
        defaults={"qwen3_vl_vision": {"depth": 27, "hidden_size": 1152}},
    ),
)
