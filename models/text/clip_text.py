"""CLIP's text encoder (Radford et al. 2021, arXiv:2103.00020): causal pre-norm layers; the end token is the text."""

from __future__ import annotations

from ...runtime.contract.architecture import FEATURE_EXTRACTION, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, flag
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.encoder import Encoder, pre_norm_encoder, tower_outputs
from ..pipelines.diffusion.text_to_image import TEXT_CONDITIONING
from ..pipelines.encoder_tasks import Head, encoder_component, encoder_tasks
from ..schema.clip.towers import text_keys, text_weights, with_original
from ..schema.network_hyperparameters import image_act
from ..schema.weight_layout import TRANSPOSED

LEGACY_END = 2
"""The `eos_token_id` of the first checkpoints, whose end token has the largest id of the vocabulary."""
LEADING = ("text_embeds", "last_hidden_state", "pooler_output")
"""The first outputs of an encoder that is a component of a pipeline."""
KEYS = (
    *text_keys("CLIPTextModel", FEATURE_EXTRACTION, hidden=512, layers=12, heads=8, vocab=49408, context=77, eps=1e-5),
    image_act("quick_gelu"),
    Key("end", "eos_token_id", "eos_token_id", 49407, SIZE, at_most=("vocab",)),
    Key("causal", "is_causal", "attention.causal", True, flag),
    Key("projection", "projection_dim", "projection_length", 512, COUNT),
)

PROJECTION = with_original(
    Weight(
        "projection.weight",
        ("text_projection.weight", Stored(("text_projection",), TRANSPOSED)),
        "text_proj.weight",
        ("projection", "hidden"),
        optional=True,
    )
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Whether the file has the projection."""
    config.values["projected"] = "projection.weight" in weights


def build(net: Encoder) -> Value:
    """Embeddings, then pre-norm layers, which are causal unless the file denies it (MobileCLIP), and a norm."""
    net.begin()
    if not net.config.causal:
        return pre_norm_encoder(net)
    mask = net.And(net.visible(), net.LessOrEqual(net.distances(), net.Constant(value_int=0)))
    return pre_norm_encoder(net, mask)


def vectors(net: Encoder, x: Value) -> None:
    """Outputs ``last_hidden_state`` [batch, length, hidden], and ``pooler_output`` [batch, hidden]: the end token of
    each text. With a projection the second one is ``text_embeds`` [batch, projection]."""
    ends = net.ids
    if net.config.end != LEGACY_END:
        ends = net.Cast(net.Equal(ends, net.Constant(value_int=net.config.end)), to=6)
    pooled = net.GatherND(x, net.ArgMax(ends, axis=1), batch_dims=1)
    tower_outputs(net, x, pooled, "projection", "text_embeds")


def conditioning(net: Encoder, x: Value) -> None:
    """The outputs of `vectors`, and ``hidden_states.N`` [batch, length, hidden]: what enters the layers, and what each
    of them returns, without the norm."""
    for i, state in enumerate(net.states):
        net.output(f"hidden_states.{i}", state)
    vectors(net, x)


def component_outputs(net: Encoder, x: Value) -> None:
    """The outputs of `conditioning`, as Optimum orders them: a projected text is the first one."""
    conditioning(net, x)
    outputs = {value.name: value for value in net.graph.outputs}
    leading = [outputs.pop(name) for name in LEADING if name in outputs]
    net.graph.outputs = [*leading, *outputs.values()]


ARCHITECTURES = (
    Architecture(
        "clip_text",
        "CLIP text encoder",
        ("clip_text_model",),
        ("clip_text",),
        KEYS,
        (*text_weights("text_model."), PROJECTION),
        encoder_tasks(
            build, (Head(FEATURE_EXTRACTION, vectors, aliases=("hidden",)), Head(TEXT_CONDITIONING, conditioning))
        ),
        settle=settle,
        prefixes=("text_model.",),
        ignored=(r"position_ids$",),
        component=encoder_component(build, component_outputs),
    ),
)
