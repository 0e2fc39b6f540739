"""Handle of a cluster in Python: what ``cluster=`` of functions takes, and models that run on its workers."""

from __future__ import annotations

import os
from typing import Any

from ...runtime.contract.format import ReadOptions
from ...runtime.passes.weights.select import Select
from ..compare.certificate import Crew
from ..console.progress import ignored
from ..inspect.content_hash import combined_hash
from ..open.hub import absolute
from ..write.plan import Plan
from .conversion import ClusterCrew, on_cluster
from .model_rows import SharedModel
from .tensor_reports import Comparison, Hashes, checks_on, hashes_on
from .workers.cluster import Cluster
from .workers.opening import Loading, Opening


class ClusterHandle(Cluster):
    """A cluster that converts, hashes and compares files, and runs models; arguments as of `Cluster`."""

    def crew(self, plan: Plan, *described: Any, **how: Any) -> ClusterCrew:
        """The workers that carry out `plan`, which are checked; see `on_cluster`.

        Raises:
            UnsupportedError: a worker runs another version of this package.
            FileAccessError: a worker cannot read an input or write the output, or there is none.
        """
        crew = on_cluster(self, plan, *described, **how)
        crew.check()
        return crew

    def content_hash(self, path: str, read: ReadOptions, *, canonical: bool) -> str:
        """The content hash of a model, whose tensors workers hash; see `hash`."""
        opening = Opening(absolute(path), read)
        self.check(_local(path))
        (weights,) = Hashes((opening,), canonical).prepare(1)
        (hashes,) = hashes_on(self, [opening], [weights], canonical, ignored)
        return combined_hash(hashes)

    def comparison(self, source: str, made: str, level: str, select: Select) -> Crew:
        """Comparison of two models' tensors on the workers; see `verify`."""
        self.check([*_local(source), *_local(made)])
        before, after = (Opening(absolute(path), ReadOptions()) for path in (source, made))
        return checks_on(self, Comparison(before, after, level, select))

    def load(self, path: str | os.PathLike[str], verb: str, task: str | None = None) -> SharedModel:
        """A model whose method `verb` (``embed`` or ``predict``) runs on the workers, each on some rows of input.

        Args:
            path: of the model, which all workers can read.
            task: of the model, None for its own.
        """
        name = os.fspath(path)
        self.check(_local(name))
        loading = Loading(Opening(absolute(name), ReadOptions()), verb, task, {})
        return SharedModel(loading.load(None), self, loading)


def _local(path: str) -> list[str]:
    return [os.path.abspath(path)] if os.path.exists(path) else []


def cluster(where: Any) -> ClusterHandle:
    """Workers for ``convert``, ``quantize``, ``hash`` and ``verify`` to run on, and for models by `load`; close it, or
    use it in a ``with`` statement.

    Args:
        where: the address of a Dask scheduler (``tcp://host:8786``), ``local:N`` for N processes of this machine, or a
            connected `distributed.Client`.
    """
    return ClusterHandle(where)
