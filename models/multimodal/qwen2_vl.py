"""Qwen2-VL (Wang et al. 2024, arXiv:2409.12191), Qwen2.5-VL (Bai et al. 2025, arXiv:2502.13923) and Qwen3-VL (Bai et
al. 2025, arXiv:2511.21631): pictures of any size among the tokens of a language model that rotates by time, row and
column."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Config, Weight
from ...runtime.contract.mmproj import Mmproj
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.net import Net
from ..layers.packed_patches.patch_encoder import GRID as ENCODER_GRID
from ..pipelines.multimodal.exported_files import ExportedFiles
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.patch_pictures import PatchRules, patch_pictures
from ..pipelines.multimodal.prompts.patch_positions import GRID, encoded_by_grid, grid_positions
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Modality, PromptRules
from ..schema.mmproj.keys import Fixed
from ..schema.mmproj.patches import (
    TOKENS,
    DeepstackLayers,
    PositionGrid,
    WindowPattern,
    deepstack_sections,
    patch_preparation,
    qwen3_preparation,
    qwen_keys,
    qwen_weights,
    sections,
    stated_axes,
    taken_sizes,
    two_frames,
    windowed,
    without_epsilon,
)
from ..schema.mmproj.vit import pair
from ..schema.network_hyperparameters import Stated
from ..schema.patches.parts import VISION, in_one_frame, language_model, vision_keys, visual
from ..schema.rope.multimodal_rope import MultimodalRope

FEATURES_LEFT_OUT = "passes no deepstack_features, which the decoder takes: other runtimes run this model"
STACKED = "vision.deepstack_layers"


def vision_encoder(
    graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool, grid: str
) -> None:
    """``image_features`` [tokens, hidden of the text] of patches, and ``deepstack_features.J`` of encoders that have
    them; `grid`: the name of the input of grids."""
    net = Net(graph, config, weights)
    features = add_part(graph, in_one_frame(config, fixed), weights, VISION)
    net.rename_input(ENCODER_GRID, grid)
    net.output("image_features", features.pop("pooler_output"))
    for name, value in features.items():
        net.output(name, value)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Tell the language model after how many layers it adds features."""
    config.values["text.deepstack"] = len(config.values.get("vision.deepstack") or ())


PLAIN, INTERLEAVED = MultimodalRope((16, 24, 24)), MultimodalRope((24, 20, 20), interleaved=True)
SIZE = Fixed("vision.image_size", "vision.image_size", 560)
"""A size of pictures that llama.cpp warms up with."""
QWEN2 = Mmproj(
    "qwen2vl_merger",
    qwen_keys("qwen2vl_merger", SIZE),
    qwen_weights("vision.merger.norm"),
    kind=lambda config, weights: "qwen2_vl_vision",
    preparation=patch_preparation,
    stated=taken_sizes,
    tokens=TOKENS,
    text="qwen2vl",
    text_type="qwen2_vl_text",
    text_keys=sections,
    text_values=lambda source: stated_axes(source, PLAIN),
    misfit=two_frames,
    approximated=without_epsilon,
)
QWEN2_5 = Mmproj(
    "qwen2.5vl_merger",
    qwen_keys("qwen2.5vl_merger", SIZE, WindowPattern()),
    qwen_weights("vision.merger.norm", gated=True),
    kind=lambda config, weights: "qwen2_5_vl_vision",
    preparation=patch_preparation,
    stated=taken_sizes,
    tokens=TOKENS,
    text="qwen2vl",
    text_type="qwen2_5_vl_text",
    text_keys=sections,
    text_values=lambda source: stated_axes(source, PLAIN),
    misfit=windowed,
    approximated=without_epsilon,
)
QWEN3 = Mmproj(
    "qwen3vl_merger",
    qwen_keys("qwen3vl_merger", PositionGrid(), DeepstackLayers()),
    (
        Weight("vision.positions.weight", gguf="v.position_embd.weight"),
        *qwen_weights("vision.merger.norm", fused=True),
        *(
            row
            for own, theirs in (("norm", "norm"), ("up", "fc1"), ("down", "fc2"))
            for row in pair(f"vision.deepstack.{{i}}.{own}", f"v.deepstack.{{i}}.{theirs}", layers=STACKED)
        ),
    ),
    kind=lambda config, weights: "qwen3_vl_vision",
    preparation=qwen3_preparation,
    stated=taken_sizes,
    tokens=TOKENS,
    text="qwen3vl",
    text_type="qwen3_vl_text",
    text_keys=deepstack_sections,
    text_values=lambda source: stated_axes(source, INTERLEAVED),
    misfit=two_frames,
    renumbered={"v.deepstack.": "vision.deepstack"},
)


def flat(source: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the keys of the language model next to the others, where Transformers.js reads them."""
    inner = source.get("text_config")
    return {**(inner if isinstance(inner, Mapping) else {}), **source}


def patch_sizes(rules: PatchRules) -> dict[str, int]:
    """Settings of the image processor that files may leave out."""
    return {"patch_size": rules.patch, "temporal_patch_size": rules.frames, "merge_size": rules.merge}


def _architecture(
    kind: str,
    title: str,
    cls: str,
    rope: MultimodalRope,
    rules: PatchRules,
    mmproj: Mmproj,
    *,
    grid: str = GRID,
    config_json: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    deviation: str = "",
) -> Architecture:
    """An architecture of the family. Args: see `model` and `ExportedFiles`; `grid` is Transformers.js' name of the
    encoder's input of grids."""
    encoder = functools.partial(vision_encoder, grid=grid)
    processor = patch_pictures(rules, "<|vision_start|>", "<|vision_end|>")
    prompts = PromptRules((Modality(arrays=("pixel_values", GRID), encode=encoded_by_grid),), processor, grid_positions)
    return Architecture(
        kind,
        title,
        (kind,),
        (),
        (Stated("architectures", [f"{cls}ForConditionalGeneration"]), *vision_keys(151652), rope),
        (),
        (multimodal_task({VISION_ENCODER: encoder}, prompts), TEXT_FEATURES),
        accepts=writes_text,
        settle=settle,
        mmproj=(mmproj,),
        exported_files=ExportedFiles(
            f"{cls}Processor", usual=lambda config: patch_sizes(rules), model=config_json, deviation=deviation
        ),
        parts={VISION: visual(f"{kind}_vision"), TEXT: language_model(None if rope.interleaved else f"{kind}_text")},
    )


ARCHITECTURES = (
    _architecture("qwen2_vl", "Qwen2-VL", "Qwen2VL", PLAIN, PatchRules(), QWEN2, grid=ENCODER_GRID, config_json=flat),
    _architecture("qwen2_5_vl", "Qwen2.5-VL", "Qwen2_5_VL", PLAIN, PatchRules(), QWEN2_5),
    _architecture(
        "qwen3_vl", "Qwen3-VL", "Qwen3VL", INTERLEAVED, PatchRules(patch=16), QWEN3, deviation=FEATURES_LEFT_OUT
    ),
)
