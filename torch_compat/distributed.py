"""`cc.distributed`: the group of one process, which is what scripts of several processes get: training runs in one."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ..runtime.base.errors import UsageError
from ..runtime.base.process_cache import PROCESS, owned
from ..runtime.base.units import counted
from ..runtime.ranks import rank_variables
from ..tensors.core.tensor import Tensor

__all__ = [
    "ReduceOp", "all_gather", "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_rank",
    "get_world_size", "init_process_group", "is_available", "is_initialized", "reduce",
]  # fmt: skip
_GROUP: dict[str, Any] = owned({}, PROCESS)
"""The backend that the group was started with, by the key ``backend``; empty without a group."""


class ReduceOp(Enum):
    """How the tensors of all processes become one; each of them leaves that of one process as it is."""

    SUM, AVG, PRODUCT, MIN, MAX = range(5)


def is_available() -> bool:
    """Whether several processes can train together: False."""
    return False


def is_initialized() -> bool:
    """Whether the group of one process was started."""
    return bool(_GROUP)


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1,
    rank: int = -1, **options: Any,
) -> None:  # fmt: skip
    """Start the group of one process; `backend` and the other settings have no effect.

    Args:
        world_size: processes of the group, by default as the environment variable WORLD_SIZE says.

    Raises UsageError for several processes, for a WORLD_SIZE that is not a number, and for a group that was started
    already.
    """
    count = rank_variables.world_size(1) if world_size == -1 else world_size
    if count != 1:
        hint = "Start the script without torchrun"
        raise UsageError("E-TRAIN-RANKS", None, "training runs in one process", expected=1, found=count, hint=hint)
    if _GROUP:
        raise UsageError("E-TRAIN-RANKS", None, "the group was started before", hint="Call destroy_process_group()")
    _GROUP["backend"] = backend


def destroy_process_group(group: Any = None) -> None:
    """End the group."""
    _GROUP.clear()


def get_rank(group: Any = None) -> int:
    """The number of this process: 0."""
    return 0


def get_world_size(group: Any = None) -> int:
    """Processes of the group: 1."""
    return 1


def barrier(*arguments: Any, **options: Any) -> None:
    """Wait for all processes, of which this is the only one."""


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> None:
    """Replace a tensor by that of all processes together: it stays as it is."""


def reduce(tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> None:
    """As `all_reduce`, in one process."""


def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> None:
    """Replace a tensor by that of process `src`: it stays as it is."""


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> None:
    """Copy the tensors of all processes into a list of one for each; UsageError for a list of another length."""
    if len(tensor_list) != 1:
        why = f"all_gather into a list of {counted(len(tensor_list), 'tensor')}"
        raise UsageError("E-TRAIN-RANKS", None, why, expected="one for each process", found=len(tensor_list))
    tensor_list[0].become(tensor.detach())


def __dir__() -> list[str]:
    return list(__all__)
