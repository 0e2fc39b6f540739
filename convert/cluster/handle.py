"""Handle of a cluster in Python: what ``cluster=`` of `convert` and `quantize` takes."""

from __future__ import annotations

from typing import Any

from ..write.plan import Plan
from .cluster import Cluster
from .conversion import ClusterCrew, on_cluster


class ClusterHandle(Cluster):
    """A cluster that carries out conversions; arguments as of `Cluster`."""

    def crew(self, plan: Plan, *described: Any, **how: Any) -> ClusterCrew:
        """The workers that carry out `plan`, which are checked; see `on_cluster`.

        Raises:
            UnsupportedError: a worker runs another version of this package.
            FileAccessError: a worker cannot read an input or write the output, or there is none.
        """
        crew = on_cluster(self, plan, *described, **how)
        crew.check()
        return crew


def cluster(where: Any) -> ClusterHandle:
    """Workers for ``convert`` and ``quantize`` to run on; close it, or use it in a ``with`` statement.

    Args:
        where: the address of a Dask scheduler (``tcp://host:8786``), ``local:N`` for N processes of this machine, or a
            connected `distributed.Client`.
    """
    return ClusterHandle(where)
