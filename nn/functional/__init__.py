"""Functions of tensors by the names of torch.nn.functional, found in the modules of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .activation import *  # noqa: F403
    from .linear import *  # noqa: F403
    from .loss import *  # noqa: F403
else:
    from ..core.public_names import public_names

    _PUBLIC = public_names("nn.functional")
    globals().update(_PUBLIC)
    __all__ = sorted(_PUBLIC)
