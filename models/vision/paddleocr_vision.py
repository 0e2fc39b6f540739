"""Image encoder of PaddleOCR-VL (Cui et al. 2025, arXiv:2510.14528): SigLIP's layers on pictures of any size (NaViT),
with interpolated learned positions besides rotary ones."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Stored, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Integer
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.norm import bias_norm
from ..layers.packed_patches.patch_encoder import PatchEncoder
from ..pipelines.image.image_tasks import run_image_model
from ..schema.hyperparameters import LAYERS, act, matrix
from ..schema.network_hyperparameters import IMAGE_FEATURES
from ..schema.patches.encoder import SIDE
from ..schema.weight_layout import Reshaped

EDGE = Integer(1, 1 << 14)
PATCHES = "channels*patch*patch"
IMAGE = Reshaped(("hidden", PATCHES), ("hidden", "channels", "patch", "patch"))
HF, NAME, SQUARE = "vision_model.encoder.layers.{i}.", "blocks.{i}.", ("hidden", "hidden")
EMBEDDINGS = "vision_model.embeddings."


def vectors(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``last_hidden_state`` [patches, hidden], normalized; patches of a square of 2 x 2 follow each other."""
    net = PatchEncoder(graph, config, weights, 1)
    positions = net.grid.interpolated(net.vector("positions.weight"), config.side, align_corners=False)
    *_, x = net.layers(net.Add(net.embedded(), positions), bias_norm, lambda i: net.in_frames())
    squares = net.Gather(net.Squeeze(x, [0]), net.grid_of(config.merge).raster)
    net.output("last_hidden_state", bias_norm(net, squares, "norm"))


ARCHITECTURES = (
    Architecture(
        "paddleocr_vision",
        "PaddleOCR-VL image encoder",
        ("paddleocr_vl_vision",),
        (),
        (
            Key("hidden", "hidden_size", (), 1152, COUNT),
            Key("intermediate", "intermediate_size", (), 4304, COUNT),
            Key("layers", "num_hidden_layers", (), 27, LAYERS),
            Key("heads", "num_attention_heads", (), 16, COUNT),
            Key("channels", "num_channels", (), 3, COUNT),
            Key("image_size", "image_size", (), 384, EDGE),
            Key("patch", "patch_size", (), 14, SIDE),
            Key("merge", "spatial_merge_size", (), 2, SIDE),
            Key("eps", "layer_norm_eps", (), 1e-6, NOT_NEGATIVE),
            act("gelu_tanh"),
            Key("side", (), (), lambda config: config.image_size // config.patch),
        ),
        (
            Weight("positions.weight", f"{EMBEDDINGS}position_embedding.weight", shape=("side*side", "hidden")),
            Weight(
                "patch_embed.weight", Stored((f"{EMBEDDINGS}patch_embedding.weight",), IMAGE), shape=("hidden", PATCHES)
            ),
            Weight("patch_embed.bias", f"{EMBEDDINGS}patch_embedding.bias", shape=("hidden",)),
            *matrix(f"{NAME}norm1", f"{HF}layer_norm1", None, shape=("hidden",)),
            *(
                row
                for own, theirs in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj"))
                for row in matrix(f"{NAME}attn.{own}", f"{HF}self_attn.{theirs}", None, shape=SQUARE)
            ),
            *matrix(f"{NAME}norm2", f"{HF}layer_norm2", None, shape=("hidden",)),
            *matrix(f"{NAME}mlp.up", f"{HF}mlp.fc1", None, shape=("intermediate", "hidden")),
            *matrix(f"{NAME}mlp.down", f"{HF}mlp.fc2", None, shape=("hidden", "intermediate")),
            *matrix("norm", "vision_model.post_layernorm", None, shape=("hidden",)),
        ),
        (Task(IMAGE_FEATURES, {MODEL: vectors}, run_image_model),),
        prefixes=(),
        ignored=(r"position_ids$", r"packing_position_embedding\.weight$", r"vision_model\.head\."),
    ),
)
