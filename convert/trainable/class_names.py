"""Names of transformers' classes: a family and the end that says what the model is used for."""

from __future__ import annotations

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
    BASE: FEATURE_EXTRACTION,
}
"""Tasks by the ends of names, longer ends first."""


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
        return self.stem == AUTO or any(_plain(kind) == _plain(self.stem) for kind in architecture.model_types)

    def __str__(self) -> str:
        return f"{self.stem}{BASE if self.stem == AUTO and not self.is_base else ''}{self.end}"


def class_name(name: str) -> ClassName | None:
    """The parts of a name; None for a name that no class has."""
    found = _parted(name)
    if found is None or not found.stem or not found.stem[0].isupper():
        return None
    known = found.stem == AUTO or any(found.fits(architecture) for architecture in architectures())
    return found if known else None


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
