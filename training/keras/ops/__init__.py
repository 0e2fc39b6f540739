"""Functions of tensors by Keras' names, found in its modules: of values, and of symbolic tensors in a model's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....nn.core.public_names import public_names

if TYPE_CHECKING:
    from .control import *  # noqa: F403
    from .creation import *  # noqa: F403
    from .elementwise import *  # noqa: F403
    from .indexing import *  # noqa: F403
    from .layers import *  # noqa: F403
    from .linalg import *  # noqa: F403
    from .reductions import *  # noqa: F403
    from .shapes import *  # noqa: F403


def public() -> dict[str, Any]:
    """The functions by name."""
    return public_names("training.keras.ops")


if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return __dir__()
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = public()
        if name in found:
            return found[name]
        from ....runtime.base.nearest_name import nearest

        meant = nearest(name, found)
        hint = f". Did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module 'candle_convert.keras.ops' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(public())
