"""Initialisers of parameters by PyTorch's names; the numbers that a seed gives are PyTorch's."""

from .distributions import *  # noqa: F403
from .scaled import *  # noqa: F403
