"""Florence-2 (Xiao et al. 2023, arXiv:2311.06242): DaViT, a projector with positions of rows and columns, and BART,
whose encoder reads the picture and a prompt."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Below, Key, Part, Task, Weight
from ...runtime.contract.hyperparameter import SIZE, word
from ...runtime.contract.part_graph import add_part
from ...runtime.contract.part_rows import plain_weights
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, placed
from ..layers.linear import embedding, linear
from ..layers.norm import layer_norm
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.encoder_weights import norm
from ..schema.network_hyperparameters import IMAGE_TO_TEXT, PADDINGS, Stated
from ..seq2seq.tasks import encoder_decoder_graphs
from ..seq2seq.transformer import POST_NORM

VISION, PROJECTOR = "vision", "model.multi_modal_projector."
WIDTH, EPS = "vision.hidden", 1e-5
STAGE_KEYS = tuple(
    Key(f"{VISION}.{own}", f"vision_config.{theirs}", f"vision_config.{theirs}", default, PADDINGS)
    for own, theirs, default in (
        ("patches", "patch_size", [7, 3, 3, 3]),
        ("strides", "patch_stride", [4, 2, 2, 2]),
        ("paddings", "patch_padding", [3, 1, 1, 1]),
    )
)
"""Rows of the part that prompts need, and so exported models, of which config.json tells no others of the part."""
WEIGHTS = (
    Weight(
        "projector.rows.weight",
        f"{PROJECTOR}image_position_embed.row_embeddings.weight",
        shape=("vision.positions", "vision.row_width"),
    ),
    Weight(
        "projector.columns.weight",
        f"{PROJECTOR}image_position_embed.column_embeddings.weight",
        shape=("vision.positions", "vision.column_width"),
    ),
    Weight("projector.times", f"{PROJECTOR}visual_temporal_embed.pos_idx_to_embed", shape=("vision.times", WIDTH)),
    Weight("projector.linear.weight", f"{PROJECTOR}image_projection.weight", shape=("vision.projection", WIDTH)),
    *norm("projector.norm", f"{PROJECTOR}image_proj_norm", shape="vision.projection"),
)


def image_features(net: Encoder) -> Value:
    """BART's inputs from an image, [batch, 1 + rows x columns, hidden]: the mean of its tokens, and the tokens."""
    image = add_part(net.graph, net.config, net.weights, VISION)["last_hidden_state"]
    image = net.Transpose(image, perm=[0, 2, 3, 1])
    height, width = (net.Shape(image, start=axis, end=axis + 1) for axis in (1, 2))
    parts = []
    for name, length, axis in (("columns", width, 0), ("rows", height, 1)):
        table = net.vector(f"projector.{name}.weight")
        channels = int(net.tensor(f"projector.{name}.weight").shape[1])
        part = net.Unsqueeze(net.Slice(table, [0], length, [0]), [axis])
        parts.append(net.Expand(part, net.Concat(height, width, [channels], axis=0)))
    tokens = net.Reshape(net.Add(image, net.Concat(*parts, axis=2)), [0, -1, net.config.values[WIDTH]])
    tokens = net.Add(tokens, net.Slice(net.vector("projector.times"), [0], [1], [0]))
    both = net.Concat(net.ReduceMean(tokens, [1], keepdims=1), tokens, axis=1)
    return layer_norm(net, linear(net, both, "projector.linear"), "projector.norm", EPS)


def encode(net: Encoder) -> Value:
    """The hidden states of a picture and a prompt."""
    features = image_features(net)
    net.begin()
    return POST_NORM.read(net, placed(net, embedding(net, net.ids, "embed"), features, net.config.image_token))


ARCHITECTURES = (
    Architecture(
        "florence2",
        "Florence-2",
        ("florence2",),
        ("florence2",),
        (
            Stated("architectures", ["Florence2ForConditionalGeneration"]),
            Stated("is_encoder_decoder", True),
            Key("task", (), (), IMAGE_TO_TEXT, word),
            Key("image_token", "image_token_id", "image_token_id", 51289, SIZE, at_most=("vocab",)),
            *STAGE_KEYS,
        ),
        plain_weights(WEIGHTS),
        (Task(IMAGE_TO_TEXT, encoder_decoder_graphs(Encoder, encode, POST_NORM.decode), run_image_to_text),),
        prefixes=(),
        ignored=(r"^lm_head\.weight$",),
        tied=True,
        parts={
            "": Part("bart", "text_config", (Below("model.language_model.", "model."), Below("lm_head.", "lm_head."))),
            VISION: Part("davit", "vision_config", (Below("model.vision_tower."),)),
        },
    ),
)
