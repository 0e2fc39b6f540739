"""Parametrizations that networks are trained with: norms of weights apart from their directions (Salimans and Kingma
2016, arXiv:1602.07868), and weights of spectral norm 1 (Miyato et al. 2018, arXiv:1802.05957)."""

from __future__ import annotations

from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import randn
from ..core.module import Module
from ..core.parameter import Buffer
from .parametrize import register_parametrization

FIRST_ITERATIONS = 15
"""Power iterations before the first use."""


def _norms(weight: Tensor, dim: int | None) -> Tensor:
    """Norms of the parts along a dim, or of all elements, which broadcast to the weight."""
    others = [axis for axis in range(weight.ndim) if dim is None or axis != dim % weight.ndim]
    return weight.square().sum(others, keepdim=True).sqrt()


class WeightNorm(Module):
    """Norm times direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = None if dim == -1 else dim

    def forward(self, norm: Tensor, direction: Tensor) -> Tensor:
        """The weight."""
        return direction * (norm / _norms(direction, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Norm and direction, which is as long as the weight."""
        norm = _norms(weight, self.dim)
        return norm if self.dim is not None else norm.reshape(()), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the norms of a weight along `dim` (original0), None for that of the whole, and its direction (original1).
    Returns the module."""
    return register_parametrization(module, name, WeightNorm(dim))


def unit(vector: Tensor, eps: float) -> Tensor:
    """A vector of length 1."""
    return vector / vector.square().sum().sqrt().clamp(min=eps)


class SpectralNorm(Module):
    """A weight over its largest singular value, which power iterations estimate.

    Attributes:
        _u, _v: the vectors of that singular value so far.
    """

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int) -> None:
        super().__init__()
        self.iterations, self.eps, self.dim = n_power_iterations, eps, dim
        if weight.ndim > 1:
            with no_grad():
                rows = self._matrix(weight)
                self._u, self._v = (Buffer(unit(randn(length), eps)) for length in rows.shape)
                self._iterate(rows, FIRST_ITERATIONS)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, rows: Tensor, count: int) -> None:
        with no_grad():
            rows = rows.detach()
            for _ in range(count):
                self._u.copy_(unit(rows @ self._v, self.eps))
                self._v.copy_(unit(rows.T @ self._u, self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight of spectral norm 1; a step of the estimate in training mode."""
        if weight.ndim == 1:
            return unit(weight, self.eps)
        rows = self._matrix(weight)
        if self.training:
            self._iterate(rows, self.iterations)
        return weight / (self._u * 1 @ (rows @ (self._v * 1)))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value: it is taken for one of that norm."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value. Returns the module.

    Args:
        n_power_iterations: of each call in training mode.
        dim: whose parts are the rows of the matrix; by default that of the outputs.
    """
    transposed = "ConvTranspose" in type(module).__name__
    place = (1 if transposed else 0) if dim is None else dim
    made = SpectralNorm(module.get_parameter(name), n_power_iterations, eps, place)
    return register_parametrization(module, name, made)
