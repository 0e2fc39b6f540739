"""Moondream's image encoder: timm's vision transformer without class token and pool, whose patches pass a linear
layer."""

from __future__ import annotations

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, flag
from ...runtime.contract.naming import Module
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.vision_transformer import features
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES, image_act, norm_eps
from ..schema.vit import ImageSize, settle_vit
from ..schema.weight_layout import Reshaped

FIRST = "patch_embed.proj.weight"
KERNEL = Reshaped(("hidden", "channels", "patch", "patch"), ("hidden", "channels*patch*patch"))
"""The layer on pixels of a patch as a convolution."""
MODULES = (
    Module(FIRST, hf="patch_embed.linear.weight", layout=KERNEL),
    Module("patch_embed.proj.bias", hf="patch_embed.linear.bias"),
    Module("pos_embed"),
    Module("blocks"),
    Module("norm"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for a first layer of patches of another size than config.json states."""
    shape = weights[FIRST].shape
    if shape[1:] != (config.channels, config.patch, config.patch):
        why = f"a layer {list(shape)} does not fit patches of {config.patch} x {config.patch} pixels"
        raise FormatError("E-ARCH-SHAPE", config.path, why, hint="Correct vision_config.patch_size in config.json")
    settle_vit(config, weights)


def hidden(net: ImageNet) -> None:
    """Output ``last_hidden_state`` [batch, patches, hidden], normalized."""
    net.output("last_hidden_state", features(net))


ARCHITECTURES = (
    Architecture(
        "moondream_vision",
        "Moondream image encoder",
        ("moondream_vision",),
        (),
        (
            Key("hidden", "embed_dim", (), 1152, COUNT),
            Key("layers", "num_blocks", (), 27, COUNT, at_most=("hidden",)),
            Key("heads", "num_heads", (), 16, COUNT, at_most=("hidden",)),
            Key("intermediate", "hidden_features", (), 4304, COUNT),
            Key("channels", "num_channels", (), 3, COUNT),
            Key("patch", "patch_size", (), 14, COUNT),
            ImageSize(),
            norm_eps(1e-5, "layer_norm_eps"),
            image_act("gelu_tanh"),
            Key("antialias", (), (), False, flag),
        ),
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(hidden)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle,
        prefixes=(),
        modules=MODULES,
    ),
)
