"""Tokenizers: text to token ids and back, from any tokenizer file format.

tokenizer = read(graph)                          # a Graph as `candle_convert.open` gives it: GGUF metadata, or the
files next to weights ids = tokenizer.encode("Hello", add_bos=True)    # special tokens in the text are taken for
such; special=False takes them for text text = tokenizer.decode(ids)                     # without special tokens;
special=True with them stream = tokenizer.stream(before=ids)            # text of ids that come one by one
piece = stream.push(next_id)                     # "" while bytes of a character are missing; at the end
stream.finish() next_id in tokenizer.ends                        # whether a generation ends here
tokenizer.templates["default"]                   # the chat template; tokenizer.bos, .eos, .unk, .pad, .vocabulary
gguf_metadata(graph, "llama", rows)              # the keys that a GGUF file of the model has for it
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.tokenizer import Stream, Tokenizer
    from .core.vocabulary import Vocabulary
    from .readers.locate import read
    from .writers.gguf_keys import gguf_metadata

__all__ = ["Stream", "Tokenizer", "Vocabulary", "gguf_metadata", "read"]
_MODULES = {
    "Stream": "core.tokenizer",
    "Tokenizer": "core.tokenizer",
    "Vocabulary": "core.vocabulary",
    "gguf_metadata": "writers.gguf_keys",
    "read": "readers.locate",
}
"""Names that are imported lazily, by module."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
