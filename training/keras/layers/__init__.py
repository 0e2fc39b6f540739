"""Keras' layers, found in its modules: channels last, Keras' settings and initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....nn.core.public_names import public_names

if TYPE_CHECKING:
    from ..core.layer import Layer as Layer
    from .aliases import *  # noqa: F403
    from .attention import *  # noqa: F403
    from .basic import *  # noqa: F403
    from .cells import *  # noqa: F403
    from .conv import *  # noqa: F403
    from .merging import *  # noqa: F403
    from .norm import *  # noqa: F403
    from .pooling import *  # noqa: F403
    from .recurrent import *  # noqa: F403
    from .regularization import *  # noqa: F403
    from .reshaping import *  # noqa: F403
    from .rnn import *  # noqa: F403
    from .wrappers import *  # noqa: F403


def public() -> dict[str, Any]:
    """The layers by name."""
    from ..core.layer import Layer

    return {"Layer": Layer, **public_names("training.keras.layers")}


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
        raise AttributeError(f"module 'candle_convert.keras.layers' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(public())
