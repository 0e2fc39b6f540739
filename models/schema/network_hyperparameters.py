"""Hyper-parameters that networks of pictures and sounds share, and detection of files that do not name their
architecture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, TIMM, Config, Key, Row
from ...runtime.contract.hyperparameter import NOT_NEGATIVE, Integer, Listed, checked, mapping, word
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from .activation import activation
from .encoder_hyperparameters import LabelNames
from .hyperparameters import ActivationKey

IMAGE_CLASSIFICATION, IMAGE_FEATURES = "image-classification", "image-feature-extraction"
IMAGE_SEGMENTATION, OBJECT_DETECTION, DEPTH_ESTIMATION = "image-segmentation", "object-detection", "depth-estimation"
MASK_GENERATION, TEXT_DETECTION, FACE_DETECTION = "mask-generation", "text-detection", "face-detection"
TEXT_RECOGNITION, IMAGE_TO_TEXT = "text-recognition", "image-to-text"
VISUAL_QUESTION_ANSWERING = "visual-question-answering"
"""Names of tasks, as Hugging Face's pipelines have them where they do the task."""
TASKS_OF_CLASSES = (("ForImageClassification", IMAGE_CLASSIFICATION), ("Model", IMAGE_FEATURES))
"""Task of an image model, by the ending of its class in config.json."""
IMAGE_ACTIVATIONS = ("relu6", "hard_swish", "leaky_relu")
"""Activations that only image models have."""
STAGES = Listed(Integer(1, 1024), 1, 16)
"""A length for each stage of a network."""
WIDTHS = Listed(Integer(1), 1, 16)
"""Channels of each stage."""
PADDINGS = Listed(Integer(0, 64), 1, 16)
"""Padding of the convolution of each stage."""


@dataclass(frozen=True)
class ClassTask:
    """Hyper-parameter: the name of the model's task, by its class in config.json.

    Attributes:
        stem: how the names of transformers' classes begin.
        tasks: ends of the names of classes, with their tasks; the last one is that of others.
    """

    stem: str
    tasks: tuple[tuple[str, str], ...] = TASKS_OF_CLASSES
    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names != HF:
            return str(checked("task", source.get("task", self.tasks[0][1]), word))
        classes = checked("architectures", source.get("architectures") or ["Model"], Listed(word))
        return next((task for end, task in self.tasks if classes[0].endswith(end)), self.tasks[-1][1])

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {"task": config.task}
        end = next((end for end, task in self.tasks if task == config.task), self.tasks[-1][0])
        return {"architectures": [self.stem + end]}


@dataclass(frozen=True)
class Nested:
    """A hyper-parameter of a model inside another one, which config.json has in an object.

    Attributes:
        place: the key of the object.
        row: the parameter.
    """

    place: str
    row: Row

    @property
    def name(self) -> str:
        return self.row.name

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        inner = checked(self.place, source.get(self.place) or {}, mapping) if names == HF else source
        return self.row.read(names, inner, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = self.row.write(names, config)
        return {f"{self.place}.{key}": value for key, value in said.items()} if names == HF else said


@dataclass(frozen=True)
class Stated:
    """A key of config.json with one value, which only tells transformers what the file is."""

    name: str
    value: Any

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        return self.value

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.name: self.value} if names == HF else {}


LABELS = (Key("labels", (), (), None), LabelNames())
"""The number of labels, which `settle_labels` takes from the head, and their names."""
DEPTHS = Key("depths", (), "depths", None, STAGES)
"""Blocks of each stage, which files of timm do not state; see `depths_of`."""


def settle_labels(config: Config, weights: Mapping[str, StoredTensor], head: str) -> None:
    """Take the number of labels from the weight of the head."""
    config.values["labels"] = weights[head].shape[0] if head in weights else None


def settle_classifier(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of labels from ``classifier.weight``."""
    settle_labels(config, weights, "classifier.weight")


def image_activation(name: Any) -> str:
    """Our name of an activation of an image model. ValueError if unknown."""
    return str(name) if name in IMAGE_ACTIVATIONS else activation(name)


def image_act(default: str, *keys: str) -> Key:
    """The activation, under `keys` of config.json."""
    return ActivationKey("act", keys or "hidden_act", "activation", default, image_activation)


def norm_eps(default: float, *keys: str) -> Key:
    """The epsilon of norms, under `keys` of config.json."""
    return Key("eps", keys, "norm_epsilon", default, NOT_NEGATIVE)


def depths_of(weights: Iterable[str], *templates: str) -> list[int]:
    """The number of blocks in each stage, from the names of weights: a template has the fields ``{s}`` and ``{b}``, and
    several are of weights that different blocks have."""
    found: dict[int, int] = {}
    parts = [Module(template) for template in templates]
    for name in weights:
        for match in filter(None, (part.read("", name) for part in parts)):
            stage, block = match[0]["s"], match[0]["b"]
            found[stage] = max(found.get(stage, 0), block + 1)
    return [found.get(stage, 0) for stage in range(max(found, default=-1) + 1)]


def settled_stages(head: str, *blocks: str) -> Callable[[Config, dict[str, StoredTensor]], None]:
    """A function that takes the number of labels from the weight `head`, and `DEPTHS` from the names of weights, of
    which `blocks` are templates: see `depths_of`."""

    def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
        settle_labels(config, weights, head)
        config.values["depths"] = depths_of(weights, *blocks)

    return settle


def count_of(weights: Iterable[str], template: str) -> int:
    """The number of layers, from the names of weights: `template` has the field ``{i}``."""
    part = Module(template)
    found = (part.read("", name) for name in weights)
    return max((match[0]["i"] + 1 for match in found if match is not None), default=0)


POOL = "global_pool"
"""An argument of timm's models that their config.json has a second time next to the name."""


@dataclass(frozen=True)
class Implied:
    """Detects an architecture by timm's name of a model, or by the names of weights.

    Attributes:
        architecture: the name of the architecture.
        timm: pattern of the names of timm's models.
        marks: for each convention the names of weights that only its files of this architecture have.
        heads: weights that classifiers have, by any convention.
        settings: hyper-parameters by our names, from timm's name of the model (empty for files without) and its
            arguments.
        task: the only task of the models, empty for those that may be classifiers.
        prefixes: optional prefixes of the names of weights.
    """

    architecture: str
    timm: str
    marks: Mapping[str, tuple[str, ...]]
    heads: tuple[str, ...]
    settings: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda name, arguments: {}
    task: str = ""
    prefixes: tuple[str, ...] = ()

    @property
    def conventions(self) -> frozenset[str]:
        """The conventions that files of the architecture may have, besides transformers'."""
        return frozenset((*self.marks, *((TIMM,) if self.timm else ())))

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        """The convention, and the configuration in our names; None for other architectures."""
        said = source.get("architecture")
        name = said.partition(".")[0] if isinstance(said, str) else ""
        names = next((each for each in self.marks if self._marked(each, graph)), TIMM if name else None)
        if names is None or not (re.fullmatch(self.timm, name) if name else True):
            return None
        pool = {POOL: source[POOL]} if isinstance(source.get(POOL), str) else {}
        arguments = {**pool, **checked("model_args", source.get("model_args") or {}, mapping)}
        found = IMAGE_CLASSIFICATION if any(head in graph.weights for head in self.heads) else IMAGE_FEATURES
        task = self.task or found
        labels = source.get("label_names")
        said = {"general.architecture": self.architecture, "task": task, **self.settings(name, arguments)}
        return names, {**said, "label_names": labels} if labels else said

    def _marked(self, convention: str, graph: Graph) -> bool:
        """Whether the file has the marks of a convention."""
        marks = self.marks[convention]
        return any(all(prefix + mark in graph.weights for mark in marks) for prefix in ("", *self.prefixes))
