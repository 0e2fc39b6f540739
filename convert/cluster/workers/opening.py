"""Opening of models by workers, as a command opens them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.format import ReadOptions
from ....runtime.ir.graph import Graph
from ...load.load_model import load_for
from ...open.hub import absolute
from ...open.open_model import open_model
from ...open.shard_set import whole_model


@dataclass(frozen=True)
class Opening:
    """A model as plain data: an absolute path or an address of the hub, and the options of reading."""

    path: str
    read: ReadOptions
    source_format: str | None = None
    revision: str | None = None
    offline: bool = False

    def graph(self, *, whole: bool = False, **how: Any) -> Graph:
        """The model; `how` as of `open_model`. `whole`: whether one shard stands for its model."""
        return open_model(
            whole_model(self.path) if whole else self.path,
            self.read,
            format=self.source_format,
            revision=self.revision,
            offline=self.offline,
            **how,
        )


def opening(path: str, read: ReadOptions, values: Mapping[str, Any]) -> Opening:
    """Description from which workers open what a command opens by its values of options."""
    return Opening(absolute(path), read, values["source_format"], values["revision"], values["offline"])


@dataclass(frozen=True)
class Loading:
    """A model that runs, as plain data.

    Attributes:
        verb: the method that is called.
        task: of the model; None for its own.
        placed: device and its memory, as options of `load`.
    """

    opening: Opening
    verb: str
    task: str | None
    placed: Mapping[str, Any]

    def load(self, threads: int | None) -> Any:
        """The model."""
        graph = self.opening.graph(whole=True, parts=True)
        return load_for(self.verb, graph, task=self.task, threads=threads, **self.placed)
