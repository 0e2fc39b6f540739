"""Retrieval prompts: what late interaction models read around a query and with a page."""

from __future__ import annotations

from dataclasses import replace

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Graph
from ...tokenizer.readers.locate import settings

EMBEDDINGS = "embeddings"
"""The output of such a model: vectors of all tokens."""
SETTINGS = "processor_config.json"


@dataclass(frozen=True)
class RetrievalPrompts:
    """Texts around queries and before pages. processor_config.json may state them under the same names.

    Attributes:
        query_prefix: before each query.
        visual_prompt_prefix: the text of each page.
        padding: how many padding tokens follow a query, which serve as room for computation.
    """

    query_prefix: str
    visual_prompt_prefix: str
    padding: int


def stated_prompts(prompts: RetrievalPrompts, source: Graph | None) -> RetrievalPrompts:
    """The prompts with the texts that a model's files state. FormatError for a value that is not a text."""
    said = {} if source is None else settings(source, SETTINGS)
    texts = {name: said[name] for name in ("query_prefix", "visual_prompt_prefix") if said.get(name) is not None}
    wrong = next((name for name, text in texts.items() if not isinstance(text, str)), None)
    if wrong is not None:
        path = source.files[0] if source is not None and source.files else None
        why = f"invalid parameter {wrong} in {SETTINGS}: not a text"
        raise FormatError("E-PREPROCESSOR", path, why, hint=f"Correct {SETTINGS}")
    return replace(prompts, **texts)
