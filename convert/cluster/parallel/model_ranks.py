"""Tensor-parallel ranks on a cluster: each besides rank 0, which is this process, takes a worker."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from ....runtime.base.errors import FileAccessError, UsageError
from ....runtime.ranks.rank_connections import accepted, connected, listener
from ...load.tensor_parallel import Launch, Pipes, RankTask, serve_rank
from ..workers import worker
from ..workers.cluster import Cluster
from ..workers.share import Share, weight_bytes


def launch_on(cluster: Cluster) -> Launch:
    """A function that starts ranks on their own workers, which connect to this process."""

    def launch(tasks: Sequence[RankTask]) -> Pipes:
        cluster.begin(lambda: _share(tasks))
        from distributed.utils import get_ip

        addresses = sorted(cluster.addresses)
        if len(addresses) < len(tasks):
            why = f"{len(tasks)} workers are needed"
            raise UsageError("E-OPTION", None, why, found=len(addresses), hint="Start more workers")
        scheduler = urlsplit(cluster.client.scheduler.address).hostname or "127.0.0.1"
        host, key = get_ip(scheduler), secrets.token_bytes(32)  # type: ignore[no-untyped-call]
        with listener(host) as server:
            port = server.getsockname()[1]
            futures = [
                cluster.client.submit(_serve, task, host, port, key, workers=[address], pure=False, retries=0)
                for address, task in zip(addresses, tasks, strict=False)
            ]

            def check() -> None:
                for future in futures:
                    if future.status == "error":
                        raise FileAccessError("E-RANK-DIED", None, f"a rank has ended: {future.exception()}")

            found = accepted(server, key, 2 * len(tasks) + 1, check)
        cluster.keep(futures)
        cluster.close_with(found)
        return found[::2], found[1::2]

    return launch


def _share(tasks: Sequence[RankTask]) -> Share:
    """An equal part of the weights for each rank; rank 0 is this process."""
    whole = weight_bytes(tasks[0].opening.graph())
    return Share(len(tasks), whole // tasks[0].size, held=True, unit="rank")


def _serve(task: RankTask, host: str, port: int, key: bytes) -> None:
    """Compute as one rank on a worker, until rank 0 ends."""
    options = {**task.options, "threads": worker.threads()}
    commands, sums = (connected(host, port, key, number) for number in (2 * task.rank - 1, 2 * task.rank))
    serve_rank(dataclasses.replace(task, options=options), commands, sums)
