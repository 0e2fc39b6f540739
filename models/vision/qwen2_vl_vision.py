"""Image encoder of Qwen2-VL (Wang et al. 2024, arXiv:2409.12191): patches of pictures of any size, rotated along both
axes; squares of 2 x 2 patches become tokens."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import Integer
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.packed_patches.patch_encoder import PatchEncoder, patch_norm
from ..pipelines.image.image_tasks import run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES
from ..schema.patches.encoder import QWEN2_MERGER, encoder_keys, encoder_weights, merger_weights


def vectors(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``pooler_output`` [tokens, width of the text]."""
    net = PatchEncoder(graph, config, weights, config.merge)
    *_, x = net.layers(net.embedded(), patch_norm, lambda i: net.in_frames())
    net.output("pooler_output", net.merged(x, "merger", patch_norm))


ARCHITECTURES = (
    Architecture(
        "qwen2_vl_vision",
        "Qwen2-VL image encoder",
        ("qwen2_vl_vision",),
        (),
        (
            *encoder_keys(
                "embed_dim", "hidden_size", Key("ratio", "mlp_ratio", (), 4, Integer(1, 1 << 10)), "quick_gelu"
            ),
            Key("intermediate", (), (), lambda config: config.ratio * config.hidden),
        ),
        (*encoder_weights({"up": "fc1", "down": "fc2"}), *merger_weights("merger", "merger", QWEN2_MERGER)),
        (Task(IMAGE_FEATURES, {MODEL: vectors}, run_image_model),),
        prefixes=("visual.",),
    ),
)
