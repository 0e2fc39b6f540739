"""Wrappers of modules that scripts for several devices use; with one device they call the module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..core.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls `module`, as PyTorch's does without a GPU; names of parameters begin with ``module.``.

    Args:
        module: what is called.
        device_ids, output_device, dim: for several devices, of which there is one.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Call the module."""
        return self.module(*inputs, **options)


class DistributedDataParallel(DataParallel):
    """As `DataParallel`, of one process.

    Args:
        module: what is called.
        options: of groups of processes.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, **options: Any) -> None:
        super().__init__(module, device_ids, output_device)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block without the sum of gradients over processes, of which there is one."""
        yield

    @contextlib.contextmanager
    def join(self, **options: Any) -> Iterator[None]:
        """A block in which processes may have different numbers of batches; there is one process."""
        yield
