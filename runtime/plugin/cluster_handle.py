"""Handle of a cluster: what ``cluster=`` arguments become, whichever layer takes them."""

from __future__ import annotations

from typing import Any

from ..base.errors import UsageError
from .provided import Provided

PROVIDED = Provided("candle_convert.cluster")
HANDLE = "handle"
"""Name of the function that makes a handle of an address or a client."""


def handle_of(cluster: Any) -> Any:
    """The handle that ``cluster=`` got, or that of a `distributed.Client`. UsageError for anything else."""
    if getattr(cluster, "crew", None) is not None:
        return cluster
    if any(kind.__module__.partition(".")[0] == "distributed" for kind in type(cluster).__mro__):
        return PROVIDED.get(HANDLE)(cluster)
    why = f"{cluster!r} is not a cluster"
    raise UsageError("E-OPTION", None, why, hint="Pass what cluster() returns")
