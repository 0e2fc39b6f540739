"""``--pipeline-parallel``: the option, and the model whose layers workers share."""

from __future__ import annotations

from typing import Any

import click

from ....runtime.base.errors import UsageError
from .. import cluster_option

PIPELINE = (
    click.option(
        "--pipeline-parallel",
        type=click.IntRange(1),
        metavar="N",
        help="With --cluster: give each of N workers some of the layers.",
    ),
)


def stages(values: dict[str, Any]) -> int | None:
    """The workers that share the layers; None where each has all of them. UsageError without a cluster."""
    count: int | None = values["pipeline_parallel"]
    if count is not None and values["cluster"] is None:
        raise UsageError("E-OPTION", None, "--pipeline-parallel needs workers", hint="Add --cluster local:N")
    return count


def pipelined(path: str, values: dict[str, Any], count: int, activations: str | None = None) -> Any:
    """A language model whose layers `count` workers share."""
    from .layer_stages import pipelined_model

    cluster_option.check(values["cluster"], [path])
    return pipelined_model(values["cluster"], cluster_option.opening(path, values), count, activations)
