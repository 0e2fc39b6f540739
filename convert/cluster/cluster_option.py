"""``--cluster``: the option, the workers that it names, and what they print."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ..write.plan import Plan
    from .conversion import ClusterCrew
    from .workers.cluster import Cluster
    from .workers.opening import Loading, Opening

CLUSTER = (
    click.option(
        "--cluster",
        metavar="ADDRESS|local:N",
        help="Run on Dask workers: tcp://HOST:8786, or N processes of this machine.",
    ),
)
RUNS = (
    *CLUSTER,
    click.option("--dry-run", is_flag=True, help="With --cluster: show each worker's share of the work, and end."),
)


@contextlib.contextmanager
def cluster(values: dict[str, Any]) -> Iterator[Cluster | None]:
    """The workers of ``--cluster`` until the block ends; None without the option."""
    if values["cluster"] is None:
        yield None
        return
    if values.get("threads") is not None:
        why = "--threads does not apply to --cluster: each worker has its own threads"
        raise UsageError("E-OPTION", None, why, hint="Omit --threads, or start workers with --nthreads N")
    from .workers.cluster import Cluster

    with Cluster(values["cluster"]) as workers:
        yield workers


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the command runs on the workers of its options `RUNS`, which end with it, or shows their shares."""

    @functools.wraps(command)
    def run(*arguments: Any, dry_run: bool, **values: Any) -> Any:
        if dry_run:
            return _planned(command, arguments, values)
        with cluster(values) as workers:
            return command(*arguments, **{**values, "cluster": workers})

    return run


def _planned(command: Callable[..., Any], arguments: Sequence[Any], values: dict[str, Any]) -> int:
    """A dry run of a command."""
    if values["cluster"] is None:
        raise UsageError("E-OPTION", None, "--dry-run shows what workers would do", hint="Add --cluster local:2")
    from . import dry_run

    with dry_run.DryRun(values["cluster"]) as workers:
        try:
            command(*arguments, **{**values, "cluster": workers})
        except dry_run.Planned as end:
            dry_run.show(workers, end.share)
            return 0
    raise UsageError("E-OPTION", None, "these options leave nothing for workers to do", hint="Omit --cluster")


def running(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the options of a command that runs a model over its inputs, on workers too."""
    groups = (
        shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, RUNS, shared_options.READING,
    )  # fmt: skip
    return shared_options.options(*groups)(connected(command))


def load_for(verb: str, path: str, values: dict[str, Any], task: str | None = None) -> Any:
    """The model of a command, as `option_values.load_for`; its methods run on the workers of ``--cluster``."""
    found = option_values.load_for(verb, path, values, task)
    workers: Cluster | None = values["cluster"]
    if workers is None:
        return found
    from .model_rows import SharedModel

    described = loading(verb, path, values, task)
    check(workers, [path])
    return SharedModel(found, workers, described)


def loading(verb: str, path: str, values: dict[str, Any], task: str | None = None) -> Loading:
    """Description from which workers load the model of a command."""
    from .workers.opening import Loading

    return Loading(opening(path, values), verb, task, option_values.device(values))


def opening(path: str, values: dict[str, Any]) -> Opening:
    """Description from which workers open a model of a command."""
    from .workers.opening import opening

    return opening(path, option_values.read_options(values), values)


@contextlib.contextmanager
def converting(values: dict[str, Any]) -> Iterator[Cluster | None]:
    """As `cluster`, for a conversion that is planned in the block: its workers start meanwhile, unless it is a dry
    run."""
    with cluster(values) as workers:
        if workers is not None and not values["dry_run"]:
            workers.start_early()
        yield workers


def crew(cluster: Cluster | None, made: Plan, *described: Any, **how: Any) -> ClusterCrew | None:
    """The workers that carry out a plan, by what it was made of (see `on_cluster`); None without a cluster."""
    if cluster is None:
        return None
    from .conversion import on_cluster

    return on_cluster(cluster, made, *described, **how)


def start(workers: ClusterCrew | None) -> None:
    """Connect, or start local workers, check that each can take part, and print the address of the dashboard."""
    if workers is not None:
        workers.check()
        show(workers.cluster)


def check(cluster: Cluster, paths: Sequence[str]) -> None:
    """Check the version of workers and their access to local files; print the address of the dashboard."""
    cluster.check([os.path.abspath(path) for path in paths if os.path.exists(path)])
    show(cluster)


def show(cluster: Cluster) -> None:
    """Print the workers and the address of the dashboard."""
    dashboard = cluster.dashboard
    shown = "" if dashboard is None else f" · dashboard {dashboard}"
    current().note(f" cluster  {cluster.workers} at {cluster.where}{shown}")
    if cluster.excluded is not None:
        from ...runtime.ir.graph import Note

        current().warn([Note("W-CLUSTER-FILE", None, cluster.excluded)])
