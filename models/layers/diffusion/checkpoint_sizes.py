"""Detection of denoising networks: by the class that diffusers' config.json names, or by names and shapes of weights in
files without a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, ORIGINAL
from ....runtime.contract.weight_binding import find_architecture
from ....runtime.ir.graph import Graph
from ....runtime.tensor.stored_tensor import StoredTensor

PREFIX = "model.diffusion_model."
"""Prefix of a denoising network's names in files that have the whole pipeline, and in those of some tools."""
UNSTATED = ("names", "path", "parts")
"""Values of a `Config` that are not hyper-parameters."""
UNKNOWN = 1
"""Instead of a length that a tensor does not have: binding then refuses the shape of that tensor."""


def length(weights: Mapping[str, StoredTensor], name: str, axis: int) -> int:
    """The length of a tensor's axis, `UNKNOWN` without such a tensor or axis, or where it is 0."""
    shape = weights[name].shape if name in weights else ()
    return shape[axis] if axis < len(shape) and shape[axis] else UNKNOWN


def layer_count(weights: Mapping[str, StoredTensor], stem: str) -> int:
    """Number of layers: different numbers that follow `stem` and a dot in names of weights."""
    numbered = re.compile(re.escape(stem) + r"\.([0-9]{1,9})\.")
    return len({match[1] for name in weights if (match := numbered.match(name)) is not None})


Sizes = Callable[[Mapping[str, Any], Mapping[str, StoredTensor]], dict[str, Any]]


@dataclass(frozen=True)
class ImpliedDenoiser:
    """Detects the files of a family.

    Attributes:
        name: the architecture's name.
        kind: diffusers' class.
        marks: weights that only the authors' files have together.
        sizes: the configuration of such a file by our names, from its config.json and its weights.
    """

    name: str
    kind: str
    marks: tuple[str, ...]
    sizes: Sizes
    conventions = frozenset({ORIGINAL})

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        """The convention and the configuration; None for other models. A config.json of diffusers may describe weights
        with the authors' names."""
        named = source.get("_class_name") == self.kind
        for prefix in ("", PREFIX):
            if all(prefix + mark in graph.weights for mark in self.marks):
                weights = {name.removeprefix(prefix): tensor for name, tensor in graph.weights.items()}
                sizes = self.sizes({} if named else source, weights)
                return ORIGINAL, {"general.architecture": self.name, **sizes, **(self._stated(source) if named else {})}
        return (HF, {**source, "model_type": self.kind}) if named else None

    def _stated(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The hyper-parameters in a config.json of diffusers, by our names."""
        source = {**source, "model_type": self.kind}
        values = find_architecture(HF, source).config(HF, source).values
        return {name: value for name, value in values.items() if name not in UNSTATED}
