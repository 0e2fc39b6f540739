"""Moondream 1 and 2 (vikhyatk/moondream2, first revisions of 2024): patches of an image encoder, through two linear
layers, between BOS and the text of Phi 1.5."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, Architecture, Below, Config, Key, Part, Task
from ...runtime.contract.hyperparameter import COUNT, EVEN, Integer
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import tower_features
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..pipelines.image.image_tasks import run_image_model
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task
from ..pipelines.multimodal.prompts.moondream_prompt import PLACEHOLDER, moondream_prompt
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, PromptRules
from ..schema.clip.vision_part import VISION
from ..schema.hyperparameters import LAYERS, matrix
from ..schema.network_hyperparameters import IMAGE_FEATURES, Stated

ENCODER, PROJECTION = "vision_encoder.encoder.model.visual.", "vision_encoder.projection.mlp"
TEXT_SIZES = (
    Key("text.vocab", "phi_config.vocab_size", (), 51200, COUNT),
    Key("text.hidden", "phi_config.n_embd", (), 2048, COUNT),
    Key("text.layers", "phi_config.n_layer", (), 24, LAYERS),
    Key("text.heads", "phi_config.n_head", (), 32, COUNT),
    Key("text.rotary", "phi_config.rotary_dim", (), 32, EVEN, at_most=("text.head_dim",)),
)
"""Published files state none of them: the numbers are those of Moondream's code."""


def projected(net: Net) -> tuple[Value, Value]:
    """Hidden states [batch, patches, hidden of the encoder] of ``pixel_values``, and features [batch, patches, hidden
    of the text]."""
    x = tower_features(net, VISION)
    y = ACTIVATIONS["gelu_tanh"](net, linear(net, x, "projector.fc1"))
    return x, linear(net, y, "projector.fc2")


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` of ``pixel_values``."""
    net = Net(graph, config, weights)
    net.output("image_features", projected(net)[1])


def picture_features(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``last_hidden_state`` and ``image_features`` of ``pixel_values``."""
    net = Net(graph, config, weights)
    for name, value in zip(("last_hidden_state", "image_features"), projected(net), strict=True):
        net.output(name, value)


ARCHITECTURES = (
    Architecture(
        "moondream",
        "Moondream",
        ("moondream1",),
        (),
        (
            Stated("architectures", ["Moondream"]),
            Key("image_token", (), (), PLACEHOLDER, Integer(PLACEHOLDER, PLACEHOLDER)),
            *TEXT_SIZES,
            Key("projection", "vision_config.hidden_dim", (), 8192, COUNT),
        ),
        (
            *matrix("projector.fc1", f"{PROJECTION}.fc1", None, shape=("projection", "vision.hidden")),
            *matrix("projector.fc2", f"{PROJECTION}.fc2", None, shape=("text.hidden", "projection")),
        ),
        (
            multimodal_task({VISION_ENCODER: vision_encoder}, PromptRules(processor=moondream_prompt)),
            TEXT_FEATURES,
            Task(IMAGE_FEATURES, {MODEL: picture_features}, run_image_model),
        ),
        parts={
            VISION: Part("moondream_vision", "vision_config", (Below(ENCODER),)),
            TEXT: Part("phi_msft", "phi_config", (Below("text_model."),)),
        },
    ),
)
