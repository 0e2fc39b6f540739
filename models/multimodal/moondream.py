"""Moondream 1 and 2 (vikhyatk/moondream2, first revisions of 2024): patches of an image encoder, through two linear
layers, between BOS and the text of Phi 1.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.units import counted
from ...runtime.contract.architecture import MODEL, Architecture, Below, Config, Key, Part, Task
from ...runtime.contract.hyperparameter import COUNT, EVEN, Integer
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import tower_features
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..pipelines.image.image_tasks import run_image_model
from ..pipelines.multimodal.exported_files import CONFIG, PICTURES
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task
from ..pipelines.multimodal.prompts.moondream_prompt import MARKER, PLACEHOLDER, SIZE, moondream_prompt
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, PromptRules
from ..preprocess.stated_preparation import stated_settings
from ..schema.clip.vision_part import VISION
from ..schema.hyperparameters import LAYERS, matrix
from ..schema.network_hyperparameters import IMAGE_FEATURES, Stated
from ..tokenizer.readers.locate import settings

TOKENIZER = "tokenizer.json"
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


def pictures(config: Config) -> dict[str, Any]:
    """preprocessor_config.json, which Moondream's files lack: pictures from -1 to 1."""
    height, width = config.values["vision.image_size"] or SIZE
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": 3,
        "do_center_crop": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_convert_rgb": True,
    }


def exported_files(graph: Graph, config: Config) -> dict[str, Any]:
    """Files by which Transformers.js runs the graphs: Phi's configuration in transformers' keys, and ``<image>``, a
    token with an id that the model does not use, for each row of features; a note where no id is left for it."""
    said, tokens = settings(graph, CONFIG), settings(graph, TOKENIZER)
    sizes = {
        "num_hidden_layers": config.values["text.layers"],
        "num_attention_heads": config.values["text.heads"],
        "num_key_value_heads": config.values["text.heads"],
        "hidden_size": config.values["text.hidden"],
    }
    inner = said.get("phi_config")
    phi = {**(inner if isinstance(inner, Mapping) else {}), "model_type": "phi", **sizes}
    found: dict[str, Any] = {CONFIG: {**said, "phi_config": phi}}
    if not stated_settings(graph):
        found[PICTURES] = pictures(config)
    added, vocabulary = added_tokens(tokens), vocabulary_of(tokens)
    own = [token.get("id") for token in added if token.get("content") == MARKER]
    index = own[0] if own else placeholder_id(added, vocabulary)
    count, why = config.values["text.vocab"], ""
    if not own and not vocabulary:
        why = f"{TOKENIZER} is missing or has no vocabulary of ids by token"
    elif type(index) is not int or not 0 <= index < count:
        why = f"{MARKER} has no id among the model's {counted(count, 'id')}"
    if why:
        graph.event("W-ONNX-TRANSFORMERS-JS", f"Transformers.js has no token for pictures: {why}")
        return found
    if not own:
        named = {"id": index, "content": MARKER, "normalized": False, "special": True}
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        found[TOKENIZER] = {**tokens, "added_tokens": [*added, {**named, **plain}]}
    found[CONFIG]["image_token_index"] = index
    return found


def added_tokens(tokens: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The added tokens of a tokenizer.json, without entries that are not objects."""
    stated = tokens.get("added_tokens")
    return [token for token in stated if isinstance(token, Mapping)] if isinstance(stated, list) else []


def vocabulary_of(tokens: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ids of the model of a tokenizer.json by token; empty where it states none, or in another form."""
    model = tokens.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    return vocabulary if isinstance(vocabulary, Mapping) else {}


def placeholder_id(added: Sequence[Mapping[str, Any]], vocabulary: Mapping[str, Any]) -> Any:
    """The id of `MARKER` in a vocabulary, or the first id after all others."""
    if MARKER in vocabulary:
        return vocabulary[MARKER]
    ids = (*vocabulary.values(), *(token.get("id") for token in added))
    return max((index for index in ids if isinstance(index, int)), default=-1) + 1


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
        exported_files=exported_files,
        parts={
            VISION: Part("moondream_vision", "vision_config", (Below(ENCODER),)),
            TEXT: Part("phi_msft", "phi_config", (Below("text_model."),)),
        },
    ),
)
