"""Models of Keras' layers: sequences, graphs of layers, subclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.provided import PROVIDED

if TYPE_CHECKING:
    from .model import Model as Model
    from .sequential import Sequential as Sequential

if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return __dir__()
        if name in ("Model", "Sequential"):
            from .sequential import Model, Sequential

            return {"Model": Model, "Sequential": Sequential}[name]
        if name in __dir__():
            return PROVIDED.get(name)
        raise AttributeError(f"module 'candle_convert.keras.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["Model", "Sequential", "load_model", "save_model"]
