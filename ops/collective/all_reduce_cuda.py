"""AllReduce between devices."""

from __future__ import annotations

from ...runtime.base.communicator import Alone, communicator
from ...runtime.cuda.execute.nccl import Nccl
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import View
from .all_reduce import all_reduce


@cuda(all_reduce)
def all_reduce_on_device(step: Step) -> Planned:
    """One step of NCCL; a copy to the host and back for ranks that share a card or have none."""
    ranks = communicator(step.attributes["group"])
    if isinstance(ranks, Alone):
        return View(step.input(0))
    if not isinstance(ranks, Nccl):
        return "its ranks communicate on the CPU"
    return ranks.launch("sum", step.input(0), step.output())
