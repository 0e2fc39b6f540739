"""`cc.amp`: mixed precision by PyTorch's names. Products in bf16 need no scaled gradients."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ..tensors.core.autocast import autocast as autocast

if TYPE_CHECKING:
    from ..tensors.core.tensor import Tensor

__all__ = ["GradScaler", "autocast"]


class GradScaler:
    """The scaler of losses that scripts for GPUs create: as PyTorch's without a GPU it leaves them as they are, and
    warns of that if it is `enabled`."""

    def __init__(self, device: str = "cuda", *, enabled: bool = True, **options: Any) -> None:
        if enabled:
            warnings.warn("gradients are not scaled: tensors are on the CPU", stacklevel=2)

    def scale(self, outputs: Tensor) -> Tensor:
        """The loss as it is."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Gradients are not scaled."""

    def step(self, optimizer: Any, *arguments: Any, **options: Any) -> Any:
        """A step of the optimizer."""
        return optimizer.step(*arguments, **options)

    def update(self, new_scale: Any = None) -> None:
        """There is no scale."""

    def is_enabled(self) -> bool:
        """Whether losses are scaled: False."""
        return False

    def get_scale(self) -> float:
        """1."""
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take an empty state."""


def __dir__() -> list[str]:
    return list(__all__)
