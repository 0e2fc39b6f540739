"""Functions of tensors by the names of torch.nn.functional, found in the modules of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .activation import *  # noqa: F403
    from .attention import *  # noqa: F403
    from .conv import *  # noqa: F403
    from .ctc import *  # noqa: F403
    from .distance import *  # noqa: F403
    from .dropout import *  # noqa: F403
    from .image import *  # noqa: F403
    from .linear import *  # noqa: F403
    from .loss import *  # noqa: F403
    from .norm import *  # noqa: F403
    from .pooling import *  # noqa: F403
    from .sparse import *  # noqa: F403
else:
    from ...tensors.public_function import public_function
    from ..core.public_names import public_names

    _PUBLIC = public_names("nn.functional")
    globals().update({name: public_function(compute, name, __name__) for name, compute in _PUBLIC.items()})
    __all__ = sorted(_PUBLIC)

    def __dir__() -> list[str]:
        return list(__all__)
