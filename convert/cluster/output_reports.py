"""Outputs of two models compared by a cluster, and checksums of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.graph import Graph
from ..compare.network_pairs import network_pairs
from ..evaluate.prompt_distances import prompt_distances
from ..evaluate.same_tokens import OutputDistance
from ..inspect.content_hash import file_sha256
from ..load.canonical_names import canonical_names
from ..run.compare_outputs import Compared, first_difference, outputs
from .workers.cluster import Cluster
from .workers.opening import Opening
from .workers.share import Share
from .workers.work import Work

Fed = tuple[str, Mapping[str, Any]]
"""The name of a graph, empty for a model of one, and its inputs."""


@dataclass(frozen=True)
class NetworkOutputs(Work):
    """Outputs of two networks on the same inputs; a piece is one graph of each.

    Attributes:
        nodes: whether the first value that differs is looked for.
        allowed: tolerances and device, as of `outputs`.
    """

    before: Opening
    after: Opening
    nodes: bool
    allowed: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> tuple[int, dict[str, tuple[Graph, Graph]]]:
        """The pairs of graphs."""
        return threads, network_pairs(self.before.graph(parts=True), self.after.graph(parts=True))

    def run(
        self, prepared: tuple[int, dict[str, tuple[Graph, Graph]]], piece: Fed
    ) -> tuple[list[Compared], Compared | None]:
        """The comparison of each output, and the first value that differs."""
        (threads, pairs), (name, fed) = prepared, piece
        allowed = {**self.allowed, "threads": threads}
        rows = outputs(*pairs[name], fed, **allowed)
        differs = self.nodes and not all(row.same for row in rows)
        return rows, first_difference(*pairs[name], fed, **allowed) if differs else None

    def describe(self, piece: Fed) -> str:
        return f"a run of {self.after.path}"


@dataclass(frozen=True)
class PromptOutputs(Work):
    """Outputs of two models on prompts; the only piece is all of them.

    Attributes:
        running: whether the models are opened to run.
        images: paths of pictures of each prompt.
    """

    before: Opening
    after: Opening
    running: bool
    images: Sequence[str] = ()

    exclusive = True

    def prepare(self, threads: int) -> tuple[int, Graph, Graph]:
        """The models."""
        before, after = (each.graph(whole=self.running, parts=True) for each in (self.before, self.after))
        return (threads, canonical_names(before), canonical_names(after)) if self.running else (threads, before, after)

    def run(self, prepared: tuple[int, Graph, Graph], piece: Sequence[str]) -> list[OutputDistance]:
        """Distances of the outputs."""
        threads, before, after = prepared
        return prompt_distances(before, after, piece, threads, self.images)

    def describe(self, piece: Sequence[str]) -> str:
        return f"a run of {self.after.path}"


@dataclass(frozen=True)
class FileHashes(Work):
    """SHA-256 of files; a piece is the path of one."""

    def prepare(self, threads: int) -> None:
        """Nothing."""

    def run(self, prepared: None, piece: str) -> str:
        """The checksum."""
        return file_sha256(piece)

    def describe(self, piece: str) -> str:
        return f"the checksum of {piece}"

    def share(self, pieces: Iterable[str]) -> Share:
        """The bytes of the files."""
        files = list(pieces)
        return Share(len(files), sum(map(os.path.getsize, files)), held=False)


def file_hashes_on(
    cluster: Cluster, paths: Sequence[str], sizes: Sequence[int], advance: Callable[[int], object]
) -> list[str]:
    """The checksums of files, by absolute paths."""
    found: list[str] = []
    for sha256, size in zip(cluster.in_order(FileHashes(), paths), sizes, strict=True):
        found.append(sha256)
        advance(size)
    return found
