"""Conversions on a cluster: each worker plans the same conversion from headers, and writes ranges of staged files."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FileAccessError, UnsafeFileError
from ...runtime.base.units import counted, human_size
from ...runtime.tensor.storage import Costly
from ...runtime.tensor.stored_tensor import StoredTensor
from ..open.hub import absolute
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from ..write import plan as planning
from ..write.conversion_options import Options
from ..write.read_back import Compared, compared_tensors, equal
from ..write.staging import Staging
from ..write.write import COSTLY_SPLIT, SPLIT, Job, Range, fill, jobs_of
from .workers.cluster import Cluster
from .workers.grouped import tapered
from .workers.work import Work

if TYPE_CHECKING:
    from ..quantize.recipe.request import Quantization

Checksums = dict[int, dict[tuple[int, int], int]]
"""By number of a job: checksums of ranges of its tensor."""
Written = tuple[dict[int, Any], Checksums]
"""States of audits by their number, and checksums."""
Piece = tuple[str, Sequence[Any]]
"""`WRITE` and numbers of jobs, or `COMPARE` and ranges."""
WRITE, COMPARE = "write", "compare"
COSTLY_BYTE = SPLIT // COSTLY_SPLIT
"""Copied bytes that take about as long as one that is computed."""


@dataclass(frozen=True)
class Conversion(Work):
    """A conversion that each worker plans for itself; a piece is some jobs of its writer, or some ranges of its
    output to compare.

    Attributes:
        inputs: absolute paths, or hub addresses.
        output: an absolute path.
        request: of the quantization; None for a conversion without one.
        fingerprint: of the client's plan, which the worker's has to equal.
        merged: whether the inputs are opened for a conversion; otherwise one input is opened as a whole model.
        run_key: random, so that writing and comparing share a preparation, which no other conversion gets.
    """

    inputs: tuple[str, ...]
    output: str
    options: Options
    request: Quantization | None
    fingerprint: str
    merged: bool = True
    run_key: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))

    resumes = True

    def prepare(self, threads: int) -> _Planned:
        """The plan, with a writer for each thread of the worker."""
        options = dataclasses.replace(self.options, threads=threads, resume=False, force=True)
        made = self._plan(options)
        differing = planning.differing_parts(made.fingerprint, self.fingerprint)
        if differing:
            raise _other_plan(self.inputs[0], differing)
        return _Planned(made)

    def _plan(self, options: Options) -> planning.Plan:
        if self.request is None:
            return planning.plan(self.inputs, self.output, options)
        from ..quantize.plan import plan

        format = planning.target_format(self.output, options)
        if self.merged:
            graph = planning.opened(self.inputs, format, options)
        else:
            graph = open_model(
                whole_model(self.inputs[0]),
                options.read,
                format=options.source_format,
                revision=options.revision,
                offline=options.offline,
                parts=True,
            )
        return plan(graph, self.output, self.request, options, self.inputs).plan

    def run(self, prepared: _Planned, piece: Piece) -> Any:
        """Write the jobs of these numbers, or compare ranges of what was written."""
        kind, what = piece
        return prepared.write(what) if kind == WRITE else prepared.different(what)

    def describe(self, piece: Piece) -> str:
        return f"a piece of {self.output}"


def _other_plan(path: str, differing: Sequence[str]) -> FileAccessError:
    """The error of a worker whose plan differs from the client's in these parts of its fingerprint."""
    parts = " and ".join(differing)
    if planning.INPUT_FILES in differing:
        why = f"a worker reads other files under the same path than this process, or they changed: {parts} differ"
        return FileAccessError(
            "E-CLUSTER-PLAN", path, why, hint="All workers have to reach the same files by the same paths"
        )
    why = f"a worker plans another output than this process of the same files: {parts} differ"
    return FileAccessError("E-CLUSTER-PLAN", path, why, hint="Run without --cluster, and please report it")


class _Planned:
    """A worker's plan of a conversion."""

    def __init__(self, plan: planning.Plan) -> None:
        self.plan = plan
        self.staging = Staging(plan.folder, plan.name, plan.files, plan.fingerprint)
        self.jobs = jobs_of(plan.files)
        self._lock = threading.Lock()
        self._syncs = ThreadPoolExecutor(1, "sync")
        self._compared: list[Compared] = []

    def write(self, numbers: Sequence[int]) -> Written:
        """Write jobs; returns the counts and audits of the written tensors."""
        counts = [audit.noted for audit in self.plan.audits]
        buffer = memoryview(bytearray(min(self.plan.chunk, 1 << 20)))
        checksums: Checksums = {}
        syncing = []
        for number in numbers:
            job = self.jobs[number]
            syncing.append(self._syncs.submit(_synced, self._write(job, buffer)))
            storage = _costly(job)
            if storage is not None:
                inside = {span: value for span, value in storage.checksums.items() if span[0] >= job.start}
                checksums[number] = {span: value for span, value in inside.items() if span[1] <= job.stop}
        for each in syncing:
            each.result()
        changed = [number for number, audit in enumerate(self.plan.audits) if audit.noted != counts[number]]
        return {number: self.plan.audits[number].state() for number in changed}, checksums

    def _write(self, job: Job, buffer: memoryview) -> int:
        """Write a job; returns the open file."""
        file = self.staging.files[job.file]
        handle = os.open(self.staging.path(file), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._refuse_other_run()
            for _ in fill(handle, job, buffer, self.plan.chunk):
                pass
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _refuse_other_run(self) -> None:
        """UnsafeFileError where the staged files are not, or no longer, those of this plan: the run that sent the piece
        ended, and another one began."""
        try:
            with open(self.staging.journal_path, encoding="utf-8") as journal:
                stated = json.loads(journal.readline())
        except (FileNotFoundError, ValueError):
            stated = None
        if stated != {"plan": self.staging.fingerprint}:
            raise UnsafeFileError("E-OUT-BUSY", self.staging.partial, "belongs to another run")

    def different(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges that do not have the planned bytes."""
        with self._lock:
            self._compared = self._compared or compared_tensors(self.plan, self.staging)
        return [part for part in ranges if not equal(self._compared, part)]


def _synced(handle: int) -> None:
    """Wait until what was written into an open file is on the disk, and close it."""
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)


class ClusterCrew:
    """The workers of a cluster, which write and compare the tensors of a plan.

    Args:
        work: the description that `plan` was made by.
    """

    def __init__(self, cluster: Cluster, work: Conversion, plan: planning.Plan) -> None:
        self.cluster = cluster
        self.work = work
        self.plan = plan

    def __str__(self) -> str:
        """The lines that ``--dry-run`` shows."""
        workers = self.cluster.workers
        pieces = len(self._pieces(jobs_of(self.plan.files)))
        each = dataclasses.replace(self.work.options, threads=max(1, workers.threads // max(1, workers.count)))
        held = human_size(dataclasses.replace(self.plan, options=each).peak_memory)
        written = human_size(self.plan.nbytes / max(1, workers.count))
        return (
            f" cluster  {workers} at {self.cluster.where}\n"
            f" share    {written} written and {held} held per worker, {counted(pieces, 'piece')} in all"
        )

    def _pieces(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Numbers of jobs that a worker does in one piece."""
        return list(tapered([(job.number, _cost(job)) for job in jobs], SPLIT, self.cluster.workers.threads))

    def check(self) -> None:
        """Refuse workers that cannot take part.

        Raises:
            UnsupportedError: a worker runs another version of this package.
            FileAccessError: a worker cannot read an input or write the output, or there is none.
        """
        read = [os.path.abspath(path) for path in (*self.plan.graph.files, *self.plan.graph.external_files)]
        self.cluster.check(read, os.path.abspath(self.plan.folder))

    def write(self, jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
        """Write jobs into the staged files; yields those whose bytes are on the disk."""
        by_number = {job.number: job for job in jobs}
        pieces = self._pieces(jobs)
        for number, (states, checksums) in self.cluster.results(self.work, [(WRITE, piece) for piece in pieces]):
            audits = self.plan.audits
            for index, state in states.items():
                audits[index].restore(state)
            for job, found in checksums.items():
                storage = _costly(by_number[job])
                if storage is not None:
                    storage.checksums |= found
            yield [by_number[job] for job in pieces[number]]
        if self.work.options.verify == "none":
            self.cluster.forget()

    def compare(self, ranges: Sequence[Range]) -> Iterator[tuple[int, Sequence[Range]]]:
        """Compare written tensors with the plan; yields bytes that were compared, and ranges that differ."""
        sizes = [(part, part.stop - part.start) for part in ranges]
        pieces = list(tapered(sizes, SPLIT, self.cluster.workers.threads))
        for number, wrong in self.cluster.results(self.work, [(COMPARE, piece) for piece in pieces]):
            yield sum(part.stop - part.start for part in pieces[number]), wrong
        self.cluster.forget()


def _cost(job: Job) -> int:
    """Bytes of a job, those that are computed by what that costs."""
    return (job.stop - job.start) * (COSTLY_BYTE if _costly(job) is not None else 1)


def _costly(job: Job) -> Costly | None:
    """The storage of a job's tensor where its bytes are computed at great cost; None elsewhere."""
    data = job.piece.data
    return data.storage if isinstance(data, StoredTensor) and isinstance(data.storage, Costly) else None


def on_cluster(
    workers: Cluster,
    plan: planning.Plan,
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: Options,
    request: Quantization | None = None,
    *,
    merged: bool = True,
) -> ClusterCrew:
    """The crew that carries out `plan`; see `Conversion`."""
    paths = tuple(absolute(os.fspath(path)) for path in inputs)
    shared = dataclasses.replace(
        options,
        lora=tuple(map(absolute, options.lora)),
        tokenizer=None if options.tokenizer is None else absolute(options.tokenizer),
        chat_template=None if options.chat_template is None else absolute(options.chat_template),
    )
    work = Conversion(paths, os.path.abspath(output), shared, request, plan.fingerprint, merged)
    return ClusterCrew(workers, work, plan)
