"""Names of transformers' classes: a family and the end that says what the model is used for."""

from __future__ import annotations

import re

from ...models.pipelines.multimodal.dual_encoders.dual_encoder_graphs import ZERO_SHOT
from ...models.pipelines.multimodal.multimodal_tasks import IMAGE_TEXT
from ...models.schema.encoder_hyperparameters import CLASSES_OF_TASKS
from ...models.schema.network_hyperparameters import IMAGE_CLASSIFICATION
from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_GENERATION, Architecture
from ...runtime.contract.weight_binding import architectures

AUTO = "Auto"
BASE = "Model"
ENDS = {
    **dict(CLASSES_OF_TASKS),
    "ForCausalLM": TEXT_GENERATION,
    "LMHeadModel": TEXT_GENERATION,
    "ForImageClassification": IMAGE_CLASSIFICATION,
    "ForZeroShotImageClassification": ZERO_SHOT,
    "ForImageTextToText": IMAGE_TEXT,
    BASE: FEATURE_EXTRACTION,
}
"""Tasks by the ends of names, longer ends first."""
OF_PARTS = (ZERO_SHOT, IMAGE_TEXT)
"""Tasks of models of several parts, whose weights keep the names of the file."""
STEMS = {
    "bitnet": "BitNet", "convnext": "ConvNext", "convnextv2": "ConvNextV2", "deit": "DeiT", "distilbert": "DistilBert",
    "efficientnet": "EfficientNet", "ernie4_5": "Ernie4_5", "eurobert": "EuroBert", "gpt2": "GPT2",
    "gpt_bigcode": "GPTBigCode", "gpt_neox": "GPTNeoX", "gptj": "GPTJ", "granitemoe": "GraniteMoe",
    "granitemoehybrid": "GraniteMoeHybrid", "hunyuan_v1_dense": "HunYuanDenseV1", "m2m_100": "M2M100",
    "mbart": "MBart", "mobilenet_v2": "MobileNetV2", "modernbert": "ModernBert", "mpnet": "MPNet", "mt5": "MT5",
    "opt": "OPT", "paddleocr_vl": "PaddleOCRVL", "qwen2_5_vl": "Qwen2_5_VL", "qwen2_5_vl_text": "Qwen2_5_VLText",
    "qwen2_vl": "Qwen2VL", "qwen2_vl_text": "Qwen2VLText", "qwen3_5_text": "Qwen3_5Text",
    "qwen3_vl": "Qwen3VL", "qwen3_vl_text": "Qwen3VLText", "RefinedWebModel": "RefinedWeb", "resnet": "ResNet",
    "smollm3": "SmolLM3",
    "stablelm": "StableLm", "umt5": "UMT5", "vit": "ViT", "xlm-roberta": "XLMRoberta",
}  # fmt: skip
"""How transformers writes a family, where that is not its model type with capitals."""
HEADS_OF_LANGUAGE_MODELS = {"GPT2": "LMHeadModel"}
"""Families whose language model has an older end."""


@dataclass(frozen=True)
class ClassName:
    """The name of a class.

    Attributes:
        stem: ``Bert``, or `AUTO` for any family.
        end: of `ENDS`.
    """

    stem: str
    end: str

    @property
    def task(self) -> str:
        """Name of the task."""
        return ENDS[self.end]

    @property
    def is_base(self) -> bool:
        """Whether the class has no head."""
        return self.end == BASE

    def fits(self, architecture: Architecture) -> bool:
        """Whether models of an architecture are of this class."""
        return self.stem == AUTO or any(
            _plain(self.stem) in (_plain(kind), _plain(STEMS.get(kind, kind))) for kind in architecture.model_types
        )

    def __str__(self) -> str:
        return f"{self.stem}{BASE if self.stem == AUTO and not self.is_base else ''}{self.end}"


def class_name(name: str) -> ClassName | None:
    """The parts of a name; None for a name that no class has."""
    found = _parted(name)
    if found is None or not found.stem or not found.stem[0].isupper():
        return None
    known = found.stem == AUTO or any(found.fits(architecture) for architecture in architectures())
    return found if known else None


def class_names() -> list[str]:
    """A name for each family and task, as transformers writes it, and those for any family."""
    ends = {task: end for end, task in reversed(ENDS.items())}
    names = {BASE, *(f"{BASE}{end}" for end in ends.values() if end != BASE)}
    found = {f"{AUTO}{name}" for name in names}
    for architecture in (each for each in architectures() if not each.parts):
        tasks = [task.name for task in architecture.tasks if task.name in ends]
        for kind in architecture.model_types:
            stem = STEMS.get(kind) or "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", kind))
            for task in tasks:
                older = HEADS_OF_LANGUAGE_MODELS.get(stem) if task == TEXT_GENERATION else None
                found.add(stem + (older or ends[task]))
    return sorted(found)


def with_end(name: str, end: str) -> str:
    """A class of the same family with another end."""
    found = _parted(name)
    return str(ClassName(name if found is None else found.stem, end))


def _parted(name: str) -> ClassName | None:
    end = next((end for end in sorted(ENDS, key=len, reverse=True) if name.endswith(end)), None)
    if end is None:
        return None
    stem = name.removesuffix(end)
    return ClassName(AUTO if stem == AUTO + BASE else stem, end)


def _plain(name: str) -> str:
    """``DebertaV2`` and ``deberta-v2`` alike; language models inside of multimodal ones as these."""
    return "".join(filter(str.isalnum, name)).lower().removesuffix("text")
