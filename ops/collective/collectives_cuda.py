"""AllGather and AllReduce between devices."""

from __future__ import annotations

from ...runtime.cuda.execute.nccl import Nccl
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import View
from ...runtime.ranks.communicator import Alone, communicator
from .collectives import all_gather, all_reduce


def _on_device(step: Step, operation: str) -> Planned:
    """One step of NCCL; a copy to the host and back for ranks that share a card or have none."""
    ranks = communicator(step.attributes["group"])
    if isinstance(ranks, Alone):
        return View(step.input(0))
    if not isinstance(ranks, Nccl):
        return "its ranks communicate on the CPU"
    return ranks.launch(operation, step.input(0), step.output())


@cuda(all_gather)
def all_gather_on_device(step: Step) -> Planned:
    """Call NCCL's all-gather."""
    return _on_device(step, "gather")


@cuda(all_reduce)
def all_reduce_on_device(step: Step) -> Planned:
    """Call NCCL's all-reduce with a sum."""
    return _on_device(step, "sum")
