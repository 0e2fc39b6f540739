"""Layers, losses and initialisers of neural networks, by PyTorch's names, on tensors with gradients.

Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.provided import PROVIDED as PROVIDED

if TYPE_CHECKING:
    from . import functional as functional
    from . import init as init
    from . import utils as utils
    from .adapters.lora import *  # noqa: F403
    from .build.constructors import *  # noqa: F403
    from .build.var_builder import *  # noqa: F403
    from .core.module import Module as Module
    from .core.parameter import Buffer as Buffer
    from .core.parameter import Parameter as Parameter
    from .layers.activation import *  # noqa: F403
    from .layers.attention import *  # noqa: F403
    from .layers.container import *  # noqa: F403
    from .layers.conv import *  # noqa: F403
    from .layers.distance import *  # noqa: F403
    from .layers.dropout import *  # noqa: F403
    from .layers.linear import *  # noqa: F403
    from .layers.loss import *  # noqa: F403
    from .layers.norm import *  # noqa: F403
    from .layers.parallel import *  # noqa: F403
    from .layers.pooling import *  # noqa: F403
    from .layers.recurrent import *  # noqa: F403
    from .layers.shape import *  # noqa: F403
    from .layers.sparse import *  # noqa: F403
    from .layers.transformer import *  # noqa: F403

_FOLDERS = ("functional", "init", "utils")
_SECOND = ("modules", "parallel", "parameter")
"""Modules under PyTorch's names, which `torch_compat` lists."""


if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name in _FOLDERS:
            return importlib.import_module(f".{name}", __name__)
        if name in _SECOND:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__all__":
            return __dir__()
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .namespace import PUBLIC

        if name in PUBLIC:
            return PUBLIC[name]
        from ..runtime.base.nearest_name import nearest

        meant = nearest(name, PUBLIC)
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{f'. Did you mean {meant!r}?' if meant else ''}"
        )


def __dir__() -> list[str]:
    from .namespace import PUBLIC

    return sorted({*_FOLDERS, *PUBLIC})
