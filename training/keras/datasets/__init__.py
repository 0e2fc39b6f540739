"""Arrays of Keras' data sets, from files that are there: nothing is downloaded."""

from __future__ import annotations

from . import boston_housing as boston_housing
from . import california_housing as california_housing
from . import fashion_mnist as fashion_mnist
from . import mnist as mnist

__all__ = ["boston_housing", "california_housing", "fashion_mnist", "mnist"]


def __dir__() -> list[str]:
    return list(__all__)
