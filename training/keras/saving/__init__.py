"""Files of Keras: .keras archives, .weights.h5 and the older .h5. Nothing from a file is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .archive import load_model as load_model
    from .archive import save_model as save_model

if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return __dir__()
        if name in __dir__():
            from . import archive

            return getattr(archive, name)
        raise AttributeError(f"module 'candle_convert.keras.saving' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["load_model", "save_model"]
