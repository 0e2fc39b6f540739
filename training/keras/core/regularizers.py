"""Penalties of weights that are added to the loss."""

from __future__ import annotations

from typing import Any

from ....tensors.core.tensor import Tensor
from .settings import Configured, by_name

__all__ = ["L1", "L1L2", "L2", "get", "l1", "l1_l2", "l2"]


class L1L2(Configured):
    """``l1 * sum(|w|) + l2 * sum(w ** 2)``."""

    file_module = "keras.regularizers"

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1, self.l2 = l1, l2

    def __call__(self, x: Tensor) -> Tensor:
        """The penalty of a weight."""
        parts = [self.l1 * x.abs().sum()] if self.l1 else []
        parts += [self.l2 * (x * x).sum()] if self.l2 else []
        return sum(parts[1:], start=parts[0]) if parts else (x * 0).sum()


class L1(L1L2):
    """``l1 * sum(|w|)``."""

    def __init__(self, l1: float = 0.01) -> None:
        super().__init__(l1, 0.0)


class L2(L1L2):
    """``l2 * sum(w ** 2)``."""

    def __init__(self, l2: float = 0.01) -> None:
        super().__init__(0.0, l2)


l1, l2, l1_l2 = L1, L2, L1L2
REGULARIZERS = {"L1": L1, "L2": L2, "L1L2": L1L2, "l1_l2": L1L2}


def get(identifier: Any) -> Any:
    """A penalty: of its name, a file's description, or a function of a weight as it is."""
    return by_name(REGULARIZERS, identifier, "regularizer")


def __dir__() -> list[str]:
    return list(__all__)
