"""The state of a server: its models, running calls, and counters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from .job_queue import JobQueue
from .metrics import Metrics
from .requests.http_error import HTTPError
from .served_model import ServedModel
from .settings import Settings

RETRY_SECONDS = 1


class Server:
    """State that the requests of one server share.

    Attributes:
        models: by name, in the order of the command line.
        jobs: runs everything but the text of engines.
        prompts: one thread for templates and tokenizers, so that the loop of the server goes on.
        active: requests for models that wait or run.
    """

    def __init__(self, models: Sequence[ServedModel], settings: Settings) -> None:
        self.models = {model.name: model for model in models}
        self.settings = settings
        self.jobs = JobQueue()
        self.prompts = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        self.active = 0
        self.metrics = Metrics()
        engines = [model.engine for model in models if model.engine is not None]
        self.metrics.watch("active_requests", "Requests for models that wait or run.", lambda: self.active)
        self.metrics.watch(
            "running_texts", "Texts that are generated.", lambda: sum(engine.running for engine in engines)
        )
        self.metrics.watch("queued_jobs", "Jobs of other models that have not begun.", lambda: self.jobs.queued)

    @property
    def capacity(self) -> int:
        """Requests that run or wait at most."""
        return self.settings.parallel + self.settings.queue

    def model(self, name: str | None, verb: str) -> ServedModel:
        """The model of a name, or the first that has the verb. HTTPError 404 for an unknown name, 400 for a model that
        cannot do what is asked."""
        able = [model for model in self.models.values() if verb in model.verbs]
        if name is None:
            if not able:
                raise HTTPError(404, f"no served model can {verb}", "model_not_found", "model")
            return able[0]
        found = self.models.get(name)
        if found is None:
            known = ", ".join(self.models)
            raise HTTPError(404, f"no model {name[:80]!r}; served are {known}", "model_not_found", "model")
        if found not in able:
            can = " and ".join(found.verbs) or "none of the endpoints"
            raise HTTPError(400, f"the model {name} cannot {verb}, it can {can}", "model_cannot", "model")
        return found

    def refuse_beyond_capacity(self, count: int = 1) -> None:
        """HTTPError 429 where `count` further requests for models may not wait, 400 where they never fit."""
        if count > self.capacity:
            raise HTTPError(400, f"the request asks for {count} texts, at most {self.capacity} are taken", "too_many")
        if self.active + count > self.capacity:
            message = f"{self.active} requests run or wait already; try again later"
            raise HTTPError(429, message, "queue_full", headers={"Retry-After": str(RETRY_SECONDS)})

    @contextlib.contextmanager
    def admitted(self, count: int = 1) -> Iterator[None]:
        """Count requests for models in the block; raises as `refuse_beyond_capacity`."""
        self.refuse_beyond_capacity(count)
        self.active += count
        try:
            yield
        finally:
            self.active -= count

    def close(self, grace: float = 0.0) -> None:
        """End the engines, which finish their requests for at most so many seconds, and the threads."""
        for model in self.models.values():
            model.close(grace)
        self.jobs.close()
        self.prompts.shutdown(wait=False, cancel_futures=True)
