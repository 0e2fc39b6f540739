"""PaddleOCR-VL (Cui et al. 2025, arXiv:2510.14528): patches of pictures of any size, squares of 2 x 2 as one token,
among the tokens of an ERNIE 4.5 that rotates halves by time, row and column."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import Architecture, Config, Weight
from ...runtime.contract.mmproj import Mmproj
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.mlp import plain
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.patch_pictures import PatchRules, patch_pictures
from ..pipelines.multimodal.prompts.patch_positions import GRID, encoded_by_grid, grid_positions
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Modality, PromptRules
from ..schema.hyperparameters import matrix
from ..schema.mmproj.paddleocr import (
    paddleocr_keys,
    paddleocr_misfit,
    paddleocr_preparation,
    paddleocr_stated,
    paddleocr_weights,
)
from ..schema.mmproj.patches import sections, stated_axes
from ..schema.network_hyperparameters import Stated
from ..schema.patches.parts import VISION, in_one_frame, language_model, vision_keys, visual
from ..schema.rope.multimodal_rope import MultimodalRope

SQUARE = "vision.merge*vision.merge*vision.hidden"


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [tokens, hidden of the text] of patches."""
    net = Net(graph, config, weights)
    features = add_part(graph, in_one_frame(config, fixed), weights, VISION)["last_hidden_state"]
    x = layer_norm(net, features, "projector.norm", 1e-5)
    width = config.values["vision.merge"] ** 2 * config.values["vision.hidden"]
    net.output("image_features", plain(net, net.Reshape(x, [-1, width]), "projector", "gelu"))


def _projector(name: str, theirs: str, *shape: str) -> tuple[Weight, Weight]:
    return matrix(f"projector.{name}", (f"mlp_AR.{theirs}", f"model.projector.{theirs}"), None, shape=shape)


RULES = PromptRules(
    (Modality(arrays=("pixel_values", GRID), encode=encoded_by_grid),),
    patch_pictures(PatchRules(frames=1, squares=False), "<|IMAGE_START|>", "<|IMAGE_END|>"),
    grid_positions,
    question="OCR:",
)
ROPE = MultimodalRope((16, 24, 24))
MMPROJ = Mmproj(
    "paddleocr",
    paddleocr_keys("paddleocr"),
    paddleocr_weights(),
    kind=lambda config, weights: "paddleocr_vl_vision",
    preparation=paddleocr_preparation,
    stated=paddleocr_stated,
    tokens={
        "image_token": "<|IMAGE_PLACEHOLDER|>",
        "vision_start": "<|IMAGE_START|>",
        "vision_end": "<|IMAGE_END|>",
        "video_token": "<|video_pad|>",
    },
    text_type="paddleocr_vl_text",
    text_keys=sections,
    text_values=lambda source: stated_axes(source, ROPE),
    misfit=paddleocr_misfit,
)
ARCHITECTURES = (
    Architecture(
        "paddleocr_vl",
        "PaddleOCR-VL",
        ("paddleocr_vl",),
        (),
        (Stated("architectures", ["PaddleOCRVLForConditionalGeneration"]), *vision_keys(101305), ROPE),
        (
            *_projector("norm", "pre_norm", "vision.hidden"),
            *_projector("up", "linear_1", SQUARE, SQUARE),
            *_projector("down", "linear_2", "text.hidden", SQUARE),
        ),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        tied=True,
        defaults={"paddleocr_vl": {"image_token_id": 100295, "video_token_id": 100296}},
        mmproj=(MMPROJ,),
        parts={VISION: visual("paddleocr_vision"), TEXT: language_model("paddleocr_vl_text")},
    ),
)
