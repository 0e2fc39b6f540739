"""JSON in model files: the reader of the runtime, which models use too."""

from ...runtime.json import CONTAINER, HINT, parse

__all__ = ["CONTAINER", "HINT", "parse"]
