"""Voxtral (Mistral AI 2025, arXiv:2507.13264): Whisper's encoder, whose frames two linear layers put among the tokens
of a language model, four as one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.contract.architecture import Architecture, Below, Config, Key, Part
from ...runtime.contract.hyperparameter import SIZE
from ...runtime.contract.mmproj import Mmproj
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.feature_encoder import FEATURES
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..pipelines.multimodal.multimodal_tasks import AUDIO_TEXT, TEXT, multimodal_task
from ..pipelines.multimodal.prompts.marked_sounds import sound_prompt
from ..pipelines.multimodal.prompts.prompt_rules import Arrays, Modality, PromptRules, Run, flattened
from ..schema.hyperparameters import act
from ..schema.language_part import HIDDEN, LANGUAGE_MODEL, linear_projector
from ..schema.mmproj.vit import pair
from ..schema.mmproj.whisper import audio_keys, stacked, taken_positions, whisper_preparation, whisper_weights
from ..schema.network_hyperparameters import Stated

AUDIO, ENCODER = "audio", "audio_encoder"
VALUES = "audio_values"
"""Transformers.js' name of ``input_features``."""


def audio_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``audio_features`` [batch, tokens, hidden of the text] of ``input_features``, whose frames fill the tokens; of
    ``audio_values`` in exported graphs."""
    net = Net(graph, config, weights)
    x = add_part(graph, config, weights, AUDIO)["last_hidden_state"]
    x = linear(net, net.Reshape(x, [0, -1, config.values[f"{AUDIO}.intermediate"]]), "projector.linear_1")
    net.output("audio_features", linear(net, ACTIVATIONS[config.act](net, x), "projector.linear_2"))
    if not fixed:
        net.rename_input(FEATURES, VALUES)


def encoded(run: Run, config: Config, arrays: Arrays) -> dict[str, np.ndarray]:
    """Features of all windows, by encoders of both names of the input."""
    return flattened(run, config, {**arrays, VALUES: arrays[FEATURES]})


RULES = PromptRules(
    modalities=(Modality(ENCODER, (FEATURES,), "audio_token", "recording", encoded),), processor=sound_prompt
)
MMPROJ = Mmproj(
    "voxtral",
    audio_keys("voxtral"),
    (
        *whisper_weights(),
        *pair("projector.linear_1", "mm.a.mlp.1"),
        *pair("projector.linear_2", "mm.a.mlp.2", shape=(HIDDEN, HIDDEN)),
    ),
    kind=lambda config, weights: "voxtral_encoder",
    preparation=whisper_preparation,
    part=AUDIO,
    place="audio_config",
    stated=taken_positions,
    tokens={"audio_token": "[AUDIO]"},
    misfit=stacked,
)
ARCHITECTURES = (
    Architecture(
        "voxtral",
        "Voxtral",
        ("voxtral",),
        ("voxtral",),
        (
            Stated("architectures", ["VoxtralForConditionalGeneration"]),
            Key("audio_token", "audio_token_id", "audio_token_id", 24, SIZE, at_most=("text.vocab",)),
            act("gelu", "projector_hidden_act"),
        ),
        linear_projector(f"{AUDIO}.intermediate", "projector"),
        (multimodal_task({ENCODER: audio_encoder}, RULES, AUDIO_TEXT),),
        mmproj=(MMPROJ,),
        parts={
            AUDIO: Part(
                "voxtral_encoder",
                "audio_config",
                (Below("audio_tower.", "model.encoder."), Below("model.audio_tower.", "model.encoder.")),
            ),
            TEXT: LANGUAGE_MODEL,
        },
    ),
)
