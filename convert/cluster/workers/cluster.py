"""Cluster: workers of Dask that do the pieces of a work, by address or as processes of this machine."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

from ....runtime.base import limits
from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error, FileAccessError, LimitError, UnsupportedError, UsageError
from ....runtime.base.units import counted, human_size
from ....runtime.plugin.optional_package import optional_package
from . import worker
from .share import Share
from .version import version
from .work import Work

LOCAL = re.compile(r"local:([1-9]\d{0,3})")
ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://.+")
USE = "--cluster"
AHEAD = 3
"""Pieces sent for each that is worked on: workers that end one begin the next at once."""
EARLY = 4
"""Of those pieces, how many times as many may have ended before the next one in order."""
TRIES = 3
"""Maximum number of times that a piece may run out of memory, and of workers that may end while they compute it."""
CONNECT_SECONDS = 30
WITHOUT_WORKERS_SECONDS = 60
"""Seconds that a run waits for a worker where none is left."""
LOOK_SECONDS = 0.5
FORGET_SECONDS = 5
ENVIRON, TRIM = "distributed.nanny.pre-spawn-environ", "MALLOC_TRIM_THRESHOLD_"
"""Dask's setting, and the variable in it with which glibc returns each large array to the system: the pages of the next
one are then zeroed again, a tenth of the processor time of quantizing."""


@dataclass(frozen=True)
class Workers:
    """The workers of a cluster.

    Attributes:
        count: processes; threads: pieces that all of them do at once.
        memory: bytes that the worker with the least may use; 0 where no limit is set.
    """

    count: int
    threads: int
    memory: int

    def __str__(self) -> str:
        limit = f", {human_size(self.memory)} of memory each" if self.memory else ""
        return f"{counted(self.count, 'worker')}, {counted(self.threads, 'thread')}{limit}"


class Cluster:
    """Workers that a scheduler of Dask gives pieces of work to; a context manager.

    Args:
        where: the address of a scheduler (``tcp://host:8786``, ``tls://...``), ``local:N`` for N processes of this
            machine, or a connected `distributed.Client`, which is left open.

    Attributes:
        eligible: addresses of workers with access to the files, where others lack it; None for all workers.
        excluded: the number of workers without access, and the reason of one.

    Raises:
        UsageError: `where` is none of these.
        UnsupportedError: Dask is not installed, or a worker runs another version of this package.
        FileAccessError: nothing answers at the address.
    """

    def __init__(self, where: Any) -> None:
        self._owned: list[Any] = []
        self._connections: list[Any] = []
        self._keys: list[str] = []
        self._held: list[Any] = []
        self._local = 0
        self._client: Any = None
        self._starting = threading.RLock()
        self._early: threading.Thread | None = None
        self.eligible: list[str] | None = None
        self.excluded: str | None = None
        if not isinstance(where, str):
            self._client = _client_of(where)
            self.where = str(where.scheduler.address)
            return
        self.where = where
        match = LOCAL.fullmatch(where)
        if match is not None:
            self._local = int(match[1])
        elif not ADDRESS.fullmatch(where):
            raise UsageError(
                "E-OPTION", None, f"{where!r} is not the address of a cluster", expected="tcp://HOST:8786 or local:N"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.where}>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def client(self) -> Any:
        """The connected `distributed.Client`; connects, or starts the processes of ``local:N``."""
        with self._starting:
            if self._client is None:
                self._client = self._started() if self._local else self._connected()
            return self._client

    def start_early(self) -> None:
        """Connect, or start the processes of ``local:N``, and let workers import what conversions need, while the
        caller plans one. What fails here fails again where the workers are first used."""

        def start() -> None:
            with contextlib.suppress(Exception):
                client = self.client
                self.keep([client.submit(worker.warm_up, workers=[each], pure=False) for each in self.addresses])

        if self._early is None:
            self._early = threading.Thread(target=start, daemon=True)
            self._early.start()

    @property
    def dashboard(self) -> str | None:
        """Address of the scheduler's dashboard; None without one."""
        link = self.client.dashboard_link
        return link if isinstance(link, str) and link else None

    @property
    def workers(self) -> Workers:
        """The workers that are there, or that ``local:N`` is going to start."""
        if self._client is None and self._local:
            return Workers(self._local, self._local * self._local_threads, _local_memory(self._local))
        found = self._present.values()
        limits = [int(each["memory_limit"]) for each in found if each["memory_limit"]]
        return Workers(len(found), sum(int(each["nthreads"]) for each in found), min(limits, default=0))

    @property
    def _present(self) -> dict[str, Any]:
        """What the scheduler says of the workers that are there and eligible, by address."""
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        return {address: each for address, each in found.items() if self.eligible is None or address in self.eligible}

    @property
    def addresses(self) -> list[str]:
        """The addresses of the workers that are there."""
        return list(self._present)

    @property
    def _local_threads(self) -> int:
        return max(1, (os.cpu_count() or 1) // self._local)

    def close(self) -> None:
        """Free what workers prepared, disconnect, and end the processes of ``local:N``."""
        if self._early is not None:
            self._early.join()
        self.forget()
        connections, self._connections = self._connections, []
        owned, self._owned = self._owned[::-1], []
        for each in (*connections, *owned):
            with contextlib.suppress(Exception):
                each.close()
        if owned:
            self._client = None

    def keep(self, futures: Sequence[Any]) -> None:
        """Hold what runs until the cluster is closed: Dask cancels work that nobody holds."""
        self._held += futures

    def close_with(self, connections: Sequence[Any]) -> None:
        """Close these connections with the cluster, before its client: those of a handed-in client too."""
        self._connections += connections

    def prepares(self, key: str) -> None:
        """Note a key of what workers prepare; what they prepared by others is freed."""
        if key not in self._keys:
            self.forget()
            self._keys.append(key)

    def forget(self) -> None:
        """Free what workers prepared; workers that do not answer for `FORGET_SECONDS` are not waited for."""
        keys, self._keys = tuple(self._keys), []
        client = self._client

        def ask() -> None:
            with contextlib.suppress(Exception):
                client.run(worker.forget, keys)

        if keys and client is not None and client.status == "running":
            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            asking.join(FORGET_SECONDS)

    def _started(self) -> Any:
        distributed = optional_package("distributed", USE)
        import dask

        environ = {**dask.config.get(ENVIRON, {})}
        environ.pop(TRIM, None)
        settings = {ENVIRON: environ, "distributed.worker.profile.enabled": False}
        with _quiet(), dask.config.set(settings):
            cluster = distributed.LocalCluster(
                n_workers=self._local,
                threads_per_worker=self._local_threads,
                memory_limit=_local_memory(self._local),
                processes=True,
                silence_logs=logging.CRITICAL,
            )
            self._owned = [cluster, distributed.Client(cluster, set_as_default=False)]
        return self._owned[-1]

    def _connected(self) -> Any:
        distributed = optional_package("distributed", USE)
        with contextlib.ExitStack() as silent:
            silent.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            try:
                _refuse_scheme(distributed, self.where.partition("://")[0])
                client = distributed.Client(self.where, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                raise FileAccessError(
                    "E-CLUSTER-CONNECT",
                    None,
                    f"no scheduler answers at {self.where}",
                    hint="Start one with dask scheduler, and workers with dask worker",
                ) from error
            except (TypeError, RuntimeError, ImportError) as error:
                why = " ".join(str(error).split())
                raise FileAccessError(
                    "E-CLUSTER-CONNECT",
                    None,
                    f"cannot connect to {self.where}: {why}",
                    hint="Use a tcp:// address, or give Dask the settings and packages that this one needs",
                ) from error
            self._owned = [silent.pop_all(), client]
        return client

    def check(self, readable: Sequence[str] = (), writable: str | None = None) -> None:
        """Refuse workers of another version, and exclude those without access to the files: FileAccessError if all
        are. Those that cannot be reached are left to the scheduler, which drops them.

        Args:
            readable: absolute paths of files that are read; writable: of the folder that is written.
        """
        self._wait_for_workers()
        found = self.client.run(worker.facts, tuple(readable), writable, on_error="return")
        reached = {address: answer for address, answer in found.items() if not isinstance(answer, OSError)}
        if not reached:
            raise _no_worker(self.where)
        problems: dict[str, str] = {}
        for address, answer in reached.items():
            if isinstance(answer, BaseException):
                raise _other_version(str(answer)) from answer
            installed, problem = answer
            worker.refuse_version(version(), installed, address)
            if problem is not None:
                problems[address] = problem
        example = next((f"{problem} by the worker at {address}" for address, problem in problems.items()), "")
        if len(problems) == len(reached):
            raise FileAccessError(
                "E-CLUSTER-FILE", None, example, hint="Workers have to reach the files by the same paths"
            )
        self.eligible = [address for address in reached if address not in problems] if problems else None
        self.excluded = f"{counted(len(problems), 'worker')} left out: {example}" if problems else None

    def begin(self, share: Callable[[], Share]) -> None:
        """Called before work is sent, with what computes the share of each worker."""

    def results(self, work: Work, pieces: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The number and the result of each piece, as they come. Pieces are sent while earlier ones are worked on, so
        that neither all pieces nor all results are in memory.

        Raises:
            LimitError: a piece ran out of memory, or ended its workers, `TRIES` times.
            FileAccessError: no worker is left.
            Error: what the work itself raises.
        """
        self.begin(lambda: work.share(pieces))
        yield from _Run(self, work, pieces).results()

    def in_order(self, work: Work, pieces: Iterable[Any]) -> Iterator[Any]:
        """The result of each piece in the order of `pieces`."""
        self.begin(lambda: work.share(pieces))
        early: dict[int, Any] = {}
        following = 0
        for number, result in _Run(self, work, pieces, early).results():
            early[number] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def _wait_for_workers(self) -> None:
        from distributed import TimeoutError as DaskTimeoutError

        try:
            self.client.wait_for_workers(1, timeout=WITHOUT_WORKERS_SECONDS)
        except (DaskTimeoutError, TimeoutError) as error:
            raise _no_worker(self.where) from error


class _Run:
    """One work on a cluster: pieces that were sent, and what came back.

    Args:
        early: results that wait for that of an earlier piece, which the caller adds and takes out.
    """

    def __init__(self, cluster: Cluster, work: Work, pieces: Iterable[Any], early: Sized = ()) -> None:
        self.cluster = cluster
        self.work = work
        self.key = work.run_key or secrets.token_hex(16)
        self.limits = limits.current()
        self.early = early
        self.pending = enumerate(pieces)
        self.sent: dict[str, tuple[int, Any, Any]] = {}
        self.tries: dict[int, int] = {}
        self.ended = queue.SimpleQueue[Any]()
        self.lonely_since: float | None = None
        self.threads, self.counted_at = 0, -LOOK_SECONDS

    def results(self) -> Iterator[tuple[int, Any]]:
        self.cluster.prepares(self.key)
        try:
            while self._fill():
                try:
                    future = self.ended.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    self._look()
                    continue
                number, piece, _ = self.sent.pop(future.key)
                found = self._result(future, number, piece)
                if future.key not in self.sent:
                    future.release()
                self._fill()
                if found is not None:
                    yield number, found[0]
        finally:
            left = [future for _, _, future in self.sent.values()]
            if left:
                with contextlib.suppress(Exception):
                    self.cluster.client.cancel(left, force=True)
            if not self.work.run_key:
                self.cluster.forget()

    def _fill(self) -> bool:
        """Send pieces until all threads of all workers have some; whether any was sent and has not ended."""
        now = time.monotonic()
        if now - self.counted_at > LOOK_SECONDS:
            self.threads, self.counted_at = self.cluster.workers.threads, now
        most = max(1, self.threads) * AHEAD
        room = min(most, most * EARLY - len(self.early)) - len(self.sent)
        for item in itertools.islice(self.pending, max(0, room)):
            self._send(*item)
        return bool(self.sent)

    def _send(self, number: int, piece: Any) -> None:
        client = self.cluster.client
        task = version(), self.key, self.work, piece, self.limits
        future = client.submit(worker.perform, *task, pure=False, priority=-number, workers=self.cluster.eligible)
        self.sent[future.key] = number, piece, future
        future.add_done_callback(self.ended.put)

    def _result(self, future: Any, number: int, piece: Any) -> tuple[Any] | None:
        """The result; None where the piece is sent again."""
        from distributed import KilledWorker

        if future.status == "finished":
            return (future.result(),)
        if future.status != "error" and self.cluster.client.status == "running" and not future.cancelled():
            self._wait_again(future, number, piece)
            return None
        if future.status != "error":
            raise FileAccessError(
                "E-CLUSTER-LOST",
                None,
                f"the scheduler at {self.cluster.where} ended",
                hint=f"Start it again, then {_again(self.work)}",
            )
        error = future.exception()
        if isinstance(error, MemoryError):
            self.tries[number] = self.tries.get(number, 0) + 1
            if self.tries[number] < TRIES:
                self._send(number, piece)
                return None
            why = f"{self.work.describe(piece)} ran out of memory on {counted(TRIES, 'try', 'tries')}"
            raise LimitError("E-CLUSTER-MEMORY", None, why, hint="Give each worker more memory") from error
        if isinstance(error, KilledWorker):
            why = f"{self.work.describe(piece)} ended {counted(error.allowed_failures + 1, 'worker')}"
            hint = "Look into the logs of the workers; they may need more memory"
            raise LimitError("E-CLUSTER-WORKER", None, why, hint=hint) from error
        if isinstance(error, ImportError | AttributeError) and not isinstance(error, Error):
            raise _other_version(str(error)) from error
        raise error

    def _wait_again(self, future: Any, number: int, piece: Any) -> None:
        """Wait for a piece whose worker ended with the result: another worker does it."""
        self.sent[future.key] = number, piece, future
        time.sleep(LOOK_SECONDS / 10)
        if future.status == "pending":
            future.add_done_callback(self.ended.put)
        else:
            self.ended.put(future)

    def _look(self) -> None:
        """Raise where no worker is left for a while."""
        if self.cluster.workers.count:
            self.lonely_since = None
            return
        now = time.monotonic()
        self.lonely_since = self.lonely_since or now
        if now - self.lonely_since > WITHOUT_WORKERS_SECONDS:
            raise _no_worker(self.cluster.where, self.work)


def _client_of(where: Any) -> Any:
    distributed = optional_package("distributed", USE)
    if not isinstance(where, distributed.Client):
        raise UsageError(
            "E-OPTION", None, f"a {type(where).__name__} is not a cluster", expected="an address, local:N or a Client"
        )
    return where


def _local_memory(count: int) -> int:
    """Bytes of memory of each of `count` processes, which share that of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // count


def _other_version(why: str) -> UnsupportedError:
    return UnsupportedError(
        "E-CLUSTER-VERSION",
        None,
        f"a worker lacks a module of candle-convert {version()}: {why}",
        hint="Install the same version on all workers",
    )


def _again(work: Work | None) -> str:
    """How to begin a run once more, for hints."""
    return "run again with --resume" if work is not None and work.resumes else "run again"


def _refuse_scheme(distributed: Any, scheme: str) -> None:
    """The error of a kind of address whose packages or settings are absent: a client that meets it never ends."""
    distributed.comm.registry.get_backend(scheme).get_connector()
    if scheme in ("tls", "wss") and distributed.Security().get_connection_args("client")["ssl_context"] is None:
        raise TypeError("Dask's settings name no certificates (distributed.comm.tls)")


def _no_worker(where: str, work: Work | None = None) -> FileAccessError:
    return FileAccessError(
        "E-CLUSTER-LOST",
        None,
        f"the scheduler at {where} has had no worker for {counted(WITHOUT_WORKERS_SECONDS, 'second')}",
        hint=f"Start workers with dask worker, then {_again(work)}",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning of a dashboard that gets another port because one runs already."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
