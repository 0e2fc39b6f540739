"""Initialisers of parameters by PyTorch's names; the numbers that a seed gives are PyTorch's."""

from . import distributions, scaled
from .distributions import *  # noqa: F403
from .scaled import *  # noqa: F403

__all__ = [*distributions.__all__, *scaled.__all__]


def __dir__() -> list[str]:
    return list(__all__)
