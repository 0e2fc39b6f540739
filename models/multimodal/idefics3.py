"""Idefics3 and SmolVLM (Laurençon et al. 2024, arXiv:2408.12637; Marafioti et al. 2025, arXiv:2504.05299): pictures in
tiles, whose patches are folded into fewer tokens (pixel shuffle), among the tokens of a language model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.contract.architecture import Architecture, Below, Config, Key, Part, Weight
from ...runtime.contract.hyperparameter import SIZE, Integer
from ...runtime.contract.mmproj import Mmproj
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import take_batches_of_tiles, tower_features
from ..layers.linear import linear
from ..layers.net import Net
from ..pipelines.multimodal.exported_files import ExportedFiles
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Arrays, Modality, PromptRules, Run, flattened
from ..pipelines.multimodal.prompts.tiled_pictures import tiled_pictures
from ..schema.clip.vision_part import VISION
from ..schema.language_part import language_model_below
from ..schema.mmproj.keys import exact_gelu, vision_keys
from ..schema.mmproj.siglip import FACTOR, LongestEdge, tiled_preparation
from ..schema.mmproj.vit import vit_weights
from ..schema.network_hyperparameters import Stated

MASK, PROJECTION = "pixel_attention_mask", "connector.modality_projection.proj.weight"


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [tiles, tokens, hidden of the text] of ``pixel_values`` of the trained size. A square of
    `fold` x `fold` patches is one token. Exported graphs take a row of tiles for each text."""
    net = Net(graph, config, weights)
    (rows, columns), fold = config.values["vision.grid"], config.fold
    if rows % fold or columns % fold:
        why = f"{rows} x {columns} patches cannot be folded by {fold}"
        raise FormatError("E-ARCH-SHAPE", config.path, why, hint="Correct scale_factor in config.json")
    x = tower_features(net, VISION)
    width = config.values["vision.hidden"]
    x = net.Reshape(x, [-1, rows // fold, fold, columns // fold, fold * width])
    x = net.Reshape(net.Transpose(x, perm=[0, 1, 3, 2, 4]), [-1, rows * columns // fold**2, fold * fold * width])
    net.output("image_features", linear(net, x, "projector"))
    if not fixed:
        take_batches_of_tiles(net)


def encoded(run: Run, config: Config, arrays: Arrays) -> dict[str, np.ndarray]:
    """Features of the tiles of all pictures; tiles of zeros only fill up a batch. UsageError for tiles that are partly
    padding, which no processor of these models makes."""
    pixels = arrays["pixel_values"]
    tiles = pixels.reshape(-1, *pixels.shape[-3:])
    real = (tiles != 0).any(axis=(1, 2, 3))
    mask = arrays.get(MASK)
    if mask is not None and not mask.reshape(-1, *mask.shape[-2:])[real].all():
        why = "tiles of pictures that are partly padding are not supported"
        raise UsageError("E-RUN-SHAPE", None, why, hint="Prepare pictures with do_image_splitting, or one at a time")
    return flattened(run, config, {"pixel_values": tiles[real]})


def counts(config: Config) -> dict[str, int]:
    """Settings with which the processor counts the tokens of a tile."""
    rows, columns = config.values["vision.grid"]
    return {"image_seq_len": rows * columns // config.fold**2}


RULES = PromptRules((Modality(arrays=("pixel_values", MASK), encode=encoded),), tiled_pictures)


def mmproj(kind: str) -> Mmproj:
    """llama.cpp's file of a family; files with this projector are read as SmolVLM's, which compute the same."""
    return Mmproj(
        "idefics3",
        (*vision_keys("idefics3"), LongestEdge(), Key("fold", (), FACTOR, 2, Integer(1, 64))),
        (
            *vit_weights("vision.norm"),
            Weight("projector.weight", gguf="mm.model.fc.weight", shape=("text.hidden", "fold*fold*vision.hidden")),
        ),
        kind=lambda config, weights: f"{kind}_vision",
        preparation=tiled_preparation,
        tokens={"image_token": "<image>"},
        approximated=exact_gelu,
        left_out=("vision.attn_pool",),
        reads=kind == "smolvlm",
    )


ARCHITECTURES = tuple(
    Architecture(
        kind,
        title,
        (kind,),
        (),
        (
            Stated("architectures", [f"{cls}ForConditionalGeneration"]),
            Key("image_token", "image_token_id", (), 128257, SIZE),
            Key("fold", "scale_factor", (), 2, Integer(1, 64)),
        ),
        (
            Weight(
                "projector.weight", (f"model.{PROJECTION}", PROJECTION), (), ("text.hidden", "fold*fold*vision.hidden")
            ),
        ),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        ignored=(r"position_ids$",),
        exported_files=ExportedFiles(f"{cls}Processor", counts),
        parts={
            VISION: Part(
                "siglip_vision",
                "vision_config",
                (Below("model.vision_model.", "vision_model."), Below("vision_model.", "vision_model.")),
            ),
            TEXT: language_model_below("model.text_model."),
        },
        mmproj=(mmproj(kind),),
    )
    for kind, title, cls in (("idefics3", "Idefics3", "Idefics3"), ("smolvlm", "SmolVLM", "SmolVLM"))
)
