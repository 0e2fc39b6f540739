"""Loggers: metrics of each step as a table of comma-separated values, or as event files of TensorBoard."""

from __future__ import annotations

from .csv_logger import CSVLogger as CSVLogger
from .logger import Logger as Logger
from .tensorboard_logger import TensorBoardLogger as TensorBoardLogger

__all__ = ["CSVLogger", "Logger", "TensorBoardLogger"]


def __dir__() -> list[str]:
    return list(__all__)
