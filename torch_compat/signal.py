"""`cc.signal`: windows of signals, by the names of torch.signal."""

from ..tensors.operations.numeric import windows as windows

__all__ = ["windows"]


def __dir__() -> list[str]:
    return list(__all__)
