"""Tokenizers: from whatever file a model comes with, text to ids and back.

    tokenizer = read(graph)                          # a Graph as `candle_convert.open` gives it: GGUF metadata, or the files beside weights
    ids = tokenizer.encode("Hello", add_bos=True)    # special tokens in the text are taken for such; special=False takes them for text
    text = tokenizer.decode(ids)                     # without special tokens; special=True with them
    stream = tokenizer.stream(before=ids)            # text of ids that come one by one
    piece = stream.push(next_id)                     # "" while bytes of a character are missing; at the end stream.finish()
    next_id in tokenizer.ends                        # whether a generation ends here
    tokenizer.templates["default"]                   # the chat template; tokenizer.bos, .eos, .unk, .pad, .vocabulary
    gguf_metadata(graph, "llama", rows)              # the keys that a GGUF file of the model has for it
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .keys import gguf_metadata
    from .reading import read
    from .tokenizer import Stream, Tokenizer
    from .vocabulary import Vocabulary

__all__ = ["Stream", "Tokenizer", "Vocabulary", "gguf_metadata", "read"]
HOMES = {"Stream": "tokenizer", "Tokenizer": "tokenizer", "Vocabulary": "vocabulary", "gguf_metadata": "keys", "read": "reading"}
"""Modules that are loaded when something in them is asked for."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)
