"""`cc.backends`: what scripts ask of and set for devices that tensors are not on."""

from __future__ import annotations

from . import absent_backend as cuda
from . import absent_backend as cudnn
from . import absent_backend as mkldnn
from . import absent_backend as mps

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]


def __dir__() -> list[str]:
    return list(__all__)
