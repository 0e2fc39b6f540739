"""`cc.optim.swa_utils`: models whose weights are averages over steps of training, by PyTorch's names."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..nn.core.module import Module
from ..nn.layers.norm import _BatchNorm as BatchNorm
from ..optim.lr_scheduler.averaging import SWALR as SWALR
from ..tensors.core.grad_mode import no_grad
from ..tensors.core.tensor import Tensor
from ..tensors.operations.creation import tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip
Average = Callable[[Tensor, Tensor, Any], Tensor]
AverageOfAll = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """The mean of all steps with equal weights."""
    return lambda averaged, current, count: averaged + (current - averaged) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A moving average that keeps `decay` at each step."""
    return lambda averaged, current, count: decay * averaged + (1 - decay) * current


def _of_all(one: Average) -> AverageOfAll:
    def averaged(targets: Sequence[Tensor], sources: Sequence[Tensor], count: Any) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(one(target, source, count) if target.dtype.kind == "float" else source)

    return averaged


def get_swa_multi_avg_fn() -> AverageOfAll:
    """As `get_swa_avg_fn`, of lists of tensors in place."""
    return _of_all(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageOfAll:
    """As `get_ema_avg_fn`, of lists of tensors in place."""
    return _of_all(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model, whose parameters become averages of those of the model at each `update_parameters`.

    Args:
        device: of the copy: the CPU.
        avg_fn: the average of one parameter, from the average so far, the parameter and the number of steps.
        multi_avg_fn: writes the averages of lists of parameters.
        use_buffers: average buffers, too; by default they are copied.

    Attributes:
        module: the copy.
        n_averaged: the number of steps, i64.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Average | None = None,
        multi_avg_fn: AverageOfAll | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("give one of avg_fn and multi_avg_fn")
        self.module = copy.deepcopy(model).to(device)
        self.register_buffer("n_averaged", tensor(0))
        self._average = multi_avg_fn or _of_all(avg_fn or get_swa_avg_fn())
        self.use_buffers = use_buffers

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Call the averaged copy."""
        return self.module(*arguments, **options)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take a step of the model into the average."""
        own, given = (
            [*each.parameters(), *(each.buffers() if self.use_buffers else ())] for each in (self.module, model)
        )
        if self.n_averaged.item() == 0:
            for target, source in zip(own, given, strict=True):
                target.copy_(source.detach())
        else:
            self._average(own, [each.detach() for each in given], self.n_averaged)
        if not self.use_buffers:
            for target, source in zip(self.module.buffers(), model.buffers(), strict=True):
                target.copy_(source.detach())
        self.n_averaged.add_(1)
        for each in (*own, self.n_averaged):
            each.realize()


@contextlib.contextmanager
def renewed_statistics(model: Module) -> Iterator[bool]:
    """Batches that the model sees in the block give all batch norms new running statistics, with equal weights. The
    model is in training mode, without gradients. Gives whether there are any batch norms."""
    norms = [each for each in model.modules() if isinstance(each, BatchNorm)]
    momenta, modes = [each.momentum for each in norms], [(each, each.training) for each in model.modules()]
    for each in norms:
        each.reset_running_stats()
        each.momentum = None
    model.train()
    try:
        with no_grad():
            yield bool(norms)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, mode in modes:
            module.training = mode


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of all batch norms from batches, of which lists and tuples have the input
    first."""
    with renewed_statistics(model) as is_needed:
        for batch in loader if is_needed else ():
            given = batch[0] if isinstance(batch, list | tuple) else batch
            model(given if device is None else given.to(device))
