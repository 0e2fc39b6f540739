"""Writes laid-out files from several threads, in any order, with bounded memory."""

from __future__ import annotations

import errno
import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ...runtime.base.dataclass import dataclass
from ...runtime.base.system_error import write_error
from ...runtime.contract.format import FileLayout, Piece
from ...runtime.plugin.cluster_handle import handle_of
from ...runtime.tensor.storage import Costly, Region
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor
from ..console.progress import Progress
from ..console.thread_pool import LONGEST, Workers
from ..inspect import tensor_values
from .staging import Staging

SPLIT = 64 * 2**20
COSTLY_SPLIT = 8 * 2**20
"""Bytes of one job where bytes take long to compute."""
SYNC_SECONDS = 0.5
_NO_KERNEL_COPY = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


@dataclass(frozen=True)
class Job:
    """A range of a piece that one thread writes."""

    number: int
    file: int
    piece: Piece
    start: int
    stop: int


@dataclass(frozen=True)
class Range:
    """A range of bytes of a written tensor that is compared with the plan.

    Attributes:
        tensor: its index among the tensors that are compared.
        checksum: of the planned bytes, where they were computed at great cost; None where they are read.
    """

    tensor: int
    start: int
    stop: int
    checksum: int | None


def jobs_of(files: Sequence[FileLayout]) -> list[Job]:
    """The work in file order. Pieces that can be read from anywhere and need no checksum are split."""
    jobs: list[Job] = []
    for index, file in enumerate(files):
        for piece in file.pieces:
            step = _split(piece)
            for start in range(0, piece.nbytes, step):
                jobs.append(Job(len(jobs), index, piece, start, min(start + step, piece.nbytes)))
    return jobs


def _split(piece: Piece) -> int:
    if not isinstance(piece.data, StoredTensor) or piece.checksum is not None or piece.data.storage.sequential:
        return max(1, piece.nbytes)
    unit = piece.data.unit
    size = COSTLY_SPLIT if isinstance(piece.data.storage, Costly) else SPLIT
    return max(unit, size // unit * unit)


class Crew(Protocol):
    """Processes that do the work on tensors in place of threads."""

    def write(self, jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
        """Write jobs into the staged files; yields those whose bytes are on the disk."""
        ...

    def compare(self, ranges: Sequence[Range]) -> Iterator[tuple[int, Sequence[Range]]]:
        """Compare written tensors with the plan; yields bytes that were compared, and ranges that differ."""
        ...


def crew_of(cluster: Any, *described: Any, **how: Any) -> Crew:
    """The crew of what ``cluster=`` got; arguments as of its method. UsageError for what is not a cluster."""
    crew: Crew = handle_of(cluster).crew(*described, **how)
    return crew


def start_early(cluster: Any) -> None:
    """Let the workers of what ``cluster=`` got, if there are any, import what conversions need; see
    `Cluster.start_early`."""
    if cluster is not None:
        handle_of(cluster).start_early()


def write(
    staging: Staging, threads: int, progress: Progress, *, resume: bool, chunk: int = CHUNK, crew: Crew | None = None
) -> int:
    """Fill all files of `staging`, sync them, and leave them staged; the bytes that an interrupted run wrote before. On
    an interrupt the journal allows a later resume. `crew` writes tensors, if it is given, else threads do."""
    handles: list[int] = []
    tensors = (piece.data for file in staging.files for piece in file.pieces if isinstance(piece.data, StoredTensor))
    if not all(isinstance(tensor.storage, Region | Costly) for tensor in tensors):
        tensor_values.load()
    try:
        done = staging.open(resume)
        for file in staging.files:
            handles.append(os.open(staging.path(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
            os.ftruncate(handles[-1], file.nbytes)
        jobs = jobs_of(staging.files)
        kept = sum(job.stop - job.start for job in jobs if job.number in done)
        progress.start(sum(job.stop - job.start for job in jobs), skipped=kept)
        team = _Team(staging, handles, [job for job in jobs if job.number not in done], progress, chunk)
        team.run(threads) if crew is None else team.delegate(crew)
        for handle in handles:
            os.fsync(handle)
    except OSError as error:
        raise write_error(staging.partial, error, "Free some space, then run again with --resume") from error
    finally:
        for handle in handles:
            os.close(handle)
        progress.finish()
    return kept


class _Team:
    """Threads that take jobs in order; the first error stops all."""

    def __init__(self, staging: Staging, handles: list[int], jobs: list[Job], progress: Progress, chunk: int) -> None:
        self.staging = staging
        self.handles = handles
        self.headers = [job for job in jobs if isinstance(job.piece.data, bytes)]
        self.jobs = iter([job for job in jobs if not isinstance(job.piece.data, bytes)])
        self.progress = progress
        self.chunk = chunk
        self.lock = threading.Lock()
        self.finished: list[Job] = []
        self.error: BaseException | None = None

    def run(self, threads: int) -> None:
        """Write the headers, into which checksums are written later, then the tensors."""
        self._write_headers()
        crew = Workers(self._work, threads)
        try:
            crew.start()
            self._watch(crew)
        except BaseException as interrupt:
            self.error = self.error or interrupt
            raise
        finally:
            crew.finish()
            if self.error is None or isinstance(self.error, KeyboardInterrupt):
                self._sync()
        if self.error is not None:
            raise self.error

    def delegate(self, crew: Crew) -> None:
        """Write the headers, and put on record what others write."""
        self._write_headers()
        for jobs in crew.write(list(self.jobs)):
            self.staging.record(job.number for job in jobs)
            self.progress.advance(sum(job.stop - job.start for job in jobs))

    def _write_headers(self) -> None:
        for job in self.headers:
            self._do(job, memoryview(b""))
        self._sync()

    def _watch(self, crew: Workers) -> None:
        synced = time.monotonic()
        while not crew.wait(LONGEST):
            if time.monotonic() - synced > SYNC_SECONDS:
                self._sync()
                synced = time.monotonic()

    def _sync(self) -> None:
        """Put what is finished on record; where an interrupt ends that, the next call does it."""
        with self.lock:
            finished = list(self.finished)
        if finished:
            for index in {job.file for job in finished}:
                os.fdatasync(self.handles[index])
            self.staging.record(job.number for job in finished)
            with self.lock:
                del self.finished[: len(finished)]

    def _work(self) -> None:
        try:
            buffer = memoryview(bytearray(min(self.chunk, 1 << 20)))
            while self.error is None:
                with self.lock:
                    job = next(self.jobs, None)
                if job is None:
                    return
                self._do(job, buffer)
        except BaseException as error:
            self.error = self.error or error

    def _do(self, job: Job, buffer: memoryview) -> None:
        """Write one job, unless another thread fails meanwhile."""
        for count in fill(self.handles[job.file], job, buffer, self.chunk):
            with self.lock:
                self.progress.advance(count)
            if self.error is not None:
                return
        with self.lock:
            self.finished.append(job)


def fill(handle: int, job: Job, buffer: memoryview, chunk: int) -> Iterator[int]:
    """Write one job; yields the bytes done now and then."""
    piece, offset = job.piece, job.piece.offset + job.start
    if not isinstance(piece.data, StoredTensor):
        _write_all(handle, piece.data, offset)
        yield piece.nbytes
    elif piece.checksum is not None:
        crc = piece.checksum.seed
        for data in piece.data.chunks(chunk):
            crc = zlib.crc32(data, crc)
            _write_all(handle, data, offset)
            offset += len(data)
            yield len(data)
        for at in piece.checksum.at:
            _write_all(handle, crc.to_bytes(4, "little"), at)
    elif isinstance(piece.data.storage, Region):
        yield from _copy(handle, offset, piece.data.storage, job.start, job.stop, buffer)
    else:
        size = min(chunk, piece.data.storage.span) if isinstance(piece.data.storage, Costly) else chunk
        for data in piece.data.chunks(size, job.start, job.stop):
            _write_all(handle, data, offset)
            offset += len(data)
            yield len(data)


def _copy(handle: int, offset: int, region: Region, start: int, stop: int, buffer: memoryview) -> Iterator[int]:
    """Copy file to file inside the kernel, or through a buffer where the file systems do not allow it."""
    source = region.source
    while start < stop:
        try:
            count = os.copy_file_range(source.fd, handle, min(stop - start, SPLIT // 4), region.offset + start, offset)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            count = 0
        if not count:
            part = buffer[: stop - start]
            source.read_into(region.offset + start, part)
            _write_all(handle, part, offset)
            count = len(part)
        start += count
        offset += count
        yield count


def _write_all(handle: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, offset)
        view = view[count:]
        offset += count
