"""Served models: a model under its name, with the engine that generates its text."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from ...models.generation.batching.engine import Engine
from ...models.generation.batching.grammar import GrammarCompiler
from ...models.generation.batching.model_rows import MakesRows

if TYPE_CHECKING:
    from ...models.generation.batching.speculation import Speculation
    from .settings import Settings

GENERATE, CHAT = "generate", "chat"


class ServedModel:
    """A loaded model.

    Args:
        speculation: how tokens of language models are proposed; encoder-decoders and multimodal models ignore it.

    Attributes:
        name: by which requests choose it.
        model: as `load` returns it.
        engine: batches its requests for text; None for models without text, and for those whose prompts hold pictures
            or sounds, which run in the job queue.
        created: seconds since 1970.
    """

    def __init__(self, name: str, model: Any, settings: Settings, speculation: Speculation | None = None) -> None:
        self.name, self.model = name, model
        self.created = int(time.time())
        self.multimodal = hasattr(model, "chat_prompt")
        batched = GENERATE in model.verbs and not self.multimodal
        self.engine: Engine | None = None
        self.context: int | None = settings.context or getattr(model, "context", None)
        if batched:
            self.engine = Engine(
                model,
                settings.parallel,
                settings.context,
                settings.cache_memory,
                None if isinstance(model, MakesRows) else speculation,
                warm_up=True,
            )
            self.context = self.engine.context

    @property
    def verbs(self) -> tuple[str, ...]:
        """Capabilities, by names of the model's methods; chat needs a chat template."""
        chats = GENERATE in self.model.verbs and bool(self.model.tokenizer.templates)
        return (*self.model.verbs, *((CHAT,) if chats else ()))

    @functools.cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles grammars for its tokens. UnsupportedError without llguidance."""
        return GrammarCompiler(self.model.tokenizer)

    @property
    def takes(self) -> str:
        """The kind of input of predictions and embeddings."""
        return getattr(self.model, "takes", "texts")

    def close(self, grace: float) -> None:
        """Finish the requests of the engine for at most so many seconds."""
        if self.engine is not None:
            self.engine.close(grace=grace)
