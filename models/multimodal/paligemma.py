"""PaliGemma (Beyer et al. 2024, arXiv:2407.07726): SigLIP's patches through a linear layer, and Gemma, in which the
tokens of picture and prompt attend to each other."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Config
from ..layers.image.tower_features import projected_features
from ..pipelines.multimodal.exported_files import ExportedFiles
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.paligemma_prompt import PALIGEMMA_RULES
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER
from ..schema.clip.paligemma_rows import paligemma_keys, paligemma_projector
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.language_part import LANGUAGE_MODEL
from ..schema.network_hyperparameters import Stated


def tokens(config: Config) -> dict[str, int]:
    """Settings with which the processor counts the tokens of a picture."""
    rows, columns = config.values["vision.grid"]
    return {"image_seq_length": rows * columns}


ARCHITECTURES = (
    Architecture(
        "paligemma",
        "PaliGemma",
        ("paligemma",),
        (),
        (Stated("architectures", ["PaliGemmaForConditionalGeneration"]), *paligemma_keys()),
        paligemma_projector(),
        (multimodal_task({VISION_ENCODER: projected_features}, PALIGEMMA_RULES), TEXT_FEATURES),
        accepts=writes_text,
        wide_activations=True,
        tied=True,
        exported_files=ExportedFiles("PaliGemmaProcessor", pictures=tokens),
        parts={VISION: vision_tower(), TEXT: LANGUAGE_MODEL},
    ),
)
