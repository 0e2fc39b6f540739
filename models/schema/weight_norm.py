"""Weight normalization (Salimans and Kingma 2016, arXiv:1602.07868): weights stored as lengths and directions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import Config, Stored, Whole
from ...runtime.contract.naming import CONVENTIONS, Module, filled
from ...runtime.tensor.stored_tensor import StoredTensor
from .computed_weights import f32
from .weight_layout import changed

WEIGHT = ".weight"
SPELLINGS = ((".weight_g", ".weight_v"), (".parametrizations.weight.original0", ".parametrizations.weight.original1"))
"""torch's names of lengths and directions, of ``torch.nn.utils.weight_norm`` and its successor."""


@dataclass(frozen=True)
class WeightNorm(Whole):
    """The tensors of lengths and directions of a weight in f32: each slice of the directions along an axis is scaled
    to its length. The lengths have the rank of the directions, and 1 in place of all other axes.

    Attributes:
        axis: of the slices.
    """

    axis: int = 0

    @property
    def computed(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        lengths, directions = parts
        if len(directions.shape) < max(2, self.axis + 1) or lengths.count != directions.shape[self.axis]:
            raise ValueError(f"lengths {list(lengths.shape)} do not fit directions {list(directions.shape)}")

        def scaled(x: np.ndarray) -> np.ndarray:
            values = x.astype(np.float64)
            found = self._lengths(values)
            factors = f32(lengths).numpy().reshape(found.shape) / np.maximum(found, np.finfo(np.float64).tiny)
            return (values * factors).astype(np.float32)

        return changed(directions, directions.shape, scaled, "f32")

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        shape = tuple(size if axis == self.axis else 1 for axis, size in enumerate(whole.shape))

        def lengths(x: np.ndarray) -> np.ndarray:
            return self._lengths(x.astype(np.float64)).astype(np.float32)

        return [changed(whole, shape, lengths, "f32"), f32(whole)]

    def _lengths(self, values: np.ndarray) -> np.ndarray:
        others = tuple(axis for axis in range(values.ndim) if axis != self.axis)
        lengths: np.ndarray = np.sqrt(np.square(values).sum(others, keepdims=True))
        return lengths


WEIGHT_NORM = WeightNorm()


@dataclass(frozen=True)
class NormedModule(Module):
    """A module whose weights files of some conventions may store by `WEIGHT_NORM`; our own are the scaled ones.

    Attributes:
        normed: the conventions that write them so. All conventions read them in either spelling, and scaled weights.
        spellings: of both tensors; the first is written.
        norm: how they are joined.
    """

    normed: tuple[str, ...] = ()
    spellings: tuple[tuple[str, str], ...] = SPELLINGS
    norm: WeightNorm = WEIGHT_NORM

    def read(self, convention: str, name: str) -> tuple[Mapping[str, int], str] | None:
        """As of `Module`; both tensors of a weight are that weight."""
        if convention in CONVENTIONS:
            for ending in (ending for pair in SPELLINGS for ending in pair):
                if name.endswith(ending):
                    return super().read(convention, name.removesuffix(ending) + WEIGHT)
        return super().read(convention, name)

    def stored(self, convention: str, indices: Mapping[str, int], rest: str) -> tuple[Stored, ...]:
        """As of `Module`, with the pairs of tensors."""
        plain = super().stored(convention, indices, rest)
        if not rest.endswith(WEIGHT):
            return plain
        stems = [filled(template, indices) + rest.removesuffix(WEIGHT) for template in self.names(convention)]
        pairs = tuple(
            Stored((stem + lengths, stem + directions), self.norm)
            for stem in stems
            for lengths, directions in self.spellings
        )
        return (*pairs, *plain) if convention in self.normed else (*plain, *pairs)
