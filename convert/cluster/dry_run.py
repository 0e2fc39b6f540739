"""``--dry-run`` of commands that run models or read tensors on workers: their shares, without sending anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..console.output import current
from .workers.cluster import Cluster
from .workers.share import Share


class Planned(Exception):
    """The end of a dry run.

    Args:
        share: of the work that would be sent.
    """

    def __init__(self, share: Share) -> None:
        super().__init__(share)
        self.share = share


class DryRun(Cluster):
    """A cluster that ends where work would be sent; processes of ``local:N`` are not started."""

    def begin(self, share: Callable[[], Share]) -> None:
        """Raise `Planned`."""
        raise Planned(share())

    def check(self, readable: Sequence[str] = (), writable: str | None = None) -> None:
        """As `Cluster.check`, of workers that run already."""
        if not self._local:
            super().check(readable, writable)

    @property
    def dashboard(self) -> str | None:
        """As `Cluster.dashboard`; None for processes that are not started."""
        return None if self._local else super().dashboard


def show(cluster: Cluster, share: Share) -> None:
    """Print what each worker gets, as text or as JSON."""
    out, workers = current(), cluster.workers
    out.say(f" share    {share.line(workers.count)}")
    out.emit(
        {
            "dry_run": True,
            "cluster": cluster.where,
            "workers": workers.count,
            "threads": workers.threads,
            "memory_limit": workers.memory,
            "count": share.count,
            "unit": share.unit,
            "bytes": share.nbytes,
            "held": share.held,
        }
    )
