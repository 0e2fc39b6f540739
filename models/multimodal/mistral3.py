"""Mistral Small 3.1 and Ministral 3 with pictures: squares of Pixtral's patches become one token each (patch merger)
among the tokens of a language model."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import SIZE, Integer
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import PIXELS, number_last_layer, tower_features
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..layers.norm import rms_norm
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.pixtral_files import PIXTRAL_FILES
from ..pipelines.multimodal.prompts.marked_pictures import MarkedPictures
from ..pipelines.multimodal.prompts.patch_rows import MERGE, SIZES, encoded_by_size, patch_rows
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Modality, PromptRules
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.hyperparameters import act
from ..schema.language_part import LANGUAGE_MODEL, PROJECTORS, linear_projector
from ..schema.mmproj.pixtral import pixtral_file
from ..schema.network_hyperparameters import Stated

MERGED = f"{MERGE}*{MERGE}*vision.hidden"


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [batch, tokens, hidden of the text] of ``pixel_values``, whose edges are multiples of `merge`
    patches. The elements of a square are in the order of torch's unfold: channels, rows, columns."""
    net, merge = Net(graph, config, weights), config.values[MERGE]
    x = rms_norm(net, tower_features(net, VISION, config.layer), "projector.norm", config.values["text.eps"])
    side, width = config.values["vision.patch"] * merge, config.values["vision.hidden"]
    squares = net.Div(net.Shape(graph.values[PIXELS], start=2, end=4), side)
    rows, columns = (net.Slice(squares, [axis], [axis + 1], [0]) for axis in (0, 1))
    x = net.Reshape(x, net.Concat([-1], rows, [merge], columns, [merge, width], axis=0))
    x = net.Transpose(x, perm=[0, 1, 3, 5, 2, 4])
    x = net.Reshape(x, net.Concat([-1], net.Mul(rows, columns), [width * merge**2], axis=0))
    x = ACTIVATIONS[config.act](net, linear(net, linear(net, x, "projector.merge"), "projector.linear_1"))
    net.output("image_features", linear(net, x, "projector.linear_2"))


RULES = PromptRules((Modality(arrays=(PIXELS, SIZES), encode=encoded_by_size),), processor=MarkedPictures(patch_rows))
ARCHITECTURES = (
    Architecture(
        "mistral3_multimodal",
        "Mistral 3 with pictures",
        ("mistral3",),
        (),
        (
            Stated("architectures", ["Mistral3ForConditionalGeneration"]),
            Key("image_token", ("image_token_index", "image_token_id"), (), 10, SIZE),
            Key("layer", "vision_feature_layer", (), -1, Integer(-128, 128)),
            Key(MERGE, "spatial_merge_size", (), 2, Integer(1, 64)),
            act("gelu", "projector_hidden_act"),
        ),
        (
            Weight("projector.norm.weight", tuple(f"{at}.norm.weight" for at in PROJECTORS), shape=("vision.hidden",)),
            Weight(
                "projector.merge.weight",
                tuple(f"{name}.patch_merger.merging_layer.weight" for name in PROJECTORS),
                shape=("vision.hidden", MERGED),
            ),
            *linear_projector("vision.hidden"),
        ),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        settle=number_last_layer,
        tied=True,
        exported_files=PIXTRAL_FILES,
        parts={VISION: vision_tower(), TEXT: LANGUAGE_MODEL},
        mmproj=(
            pixtral_file(
                "pixtral",
                Key(MERGE, (), "vision.spatial_merge_size", kind=Integer(2, 64)),
                weights=(
                    Weight("projector.norm.weight", gguf="mm.input_norm.weight", shape=("vision.hidden",)),
                    Weight("projector.merge.weight", gguf="mm.patch_merger.weight", shape=("vision.hidden", MERGED)),
                ),
                marker="mm.patch_merger.weight",
            ),
        ),
    ),
)
