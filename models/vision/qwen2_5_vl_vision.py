"""Image encoder of Qwen2.5-VL (Bai et al. 2025, arXiv:2502.13923): patches see those of their window,
in a few layers the whole frame; RMSNorm and gated feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.net import Net
from ..layers.norm import rms_norm
from ..layers.packed_patches.patch_encoder import PatchEncoder, Visible, window_side
from ..pipelines.image.image_tasks import run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES
from ..schema.patches.encoder import QWEN2_MERGER, SIDE, encoder_keys, encoder_weights, merger_weights


def norm(net: Net, x: Value, name: str) -> Value:
    """RMSNorm with epsilon 1e-6."""
    return rms_norm(net, x, name, 1e-6)


def vectors(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``pooler_output`` [tokens, width of the text]."""
    net = PatchEncoder(graph, config, weights, config.merge)
    window = window_side(config.window, config.merge, config.patch)

    def mask(i: int) -> Visible:
        return net.in_frames() if i in config.full_layers else net.in_windows(window)

    *_, x = net.layers(net.embedded(), norm, mask)
    net.output("pooler_output", net.merged(x, "merger", norm))


ARCHITECTURES = (
    Architecture(
        "qwen2_5_vl_vision",
        "Qwen2.5-VL image encoder",
        ("qwen2_5_vl_vision",),
        (),
        (
            *encoder_keys(
                "hidden_size", "out_hidden_size", Key("intermediate", "intermediate_size", (), 3420, COUNT), "silu"
            ),
            Key("window", "window_size", (), 112, COUNT),
            Key("full_layers", "fullatt_block_indexes", (), [7, 15, 23, 31], Listed(SIZE)),
            Key("seconds", "tokens_per_second", (), 4, SIDE),
        ),
        (
            *encoder_weights({"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
            *merger_weights("merger", "merger", QWEN2_MERGER),
        ),
        (Task(IMAGE_FEATURES, {MODEL: vectors}, run_image_model),),
        prefixes=("visual.",),
        defaults={"qwen2_5_vl_vision": {"hidden_size": 3584}},
    ),
)
