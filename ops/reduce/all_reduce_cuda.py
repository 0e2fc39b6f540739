"""AllReduce on the device: from card to card where each rank has one."""

from __future__ import annotations

from ...runtime.cuda.nccl import Nccl
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.launch import View
from ...runtime.ranks import Alone, communicator
from .all_reduce import all_reduce


@cuda(all_reduce)
def all_reduce_on_device(step: Step) -> Planned:
    """One step of NCCL; a copy to the host and back for ranks that share a card or have none."""
    ranks = communicator(step.attributes["group"])
    if isinstance(ranks, Alone):
        return View(step.input(0))
    if not isinstance(ranks, Nccl):
        return "its ranks are connected on the CPU"
    return ranks.launch("sum", step.input(0), step.output())
