"""Deviations of llama.cpp: what it does differently with models whose GGUF files state all settings."""

from __future__ import annotations

import re
from collections.abc import Collection

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from ....runtime.contract.architecture import Config

BIAS, OUTPUT = r"\.bias$", r"^output\.weight$"
PROJECTION_BIAS = r"\.(attn_(q|k|v|qkv|output)|ffn_\w+)\.bias$"
RECURRENT_BIAS = r"\.ssm_(in|out)\.bias$"
"""Patterns of names in GGUF files."""


@dataclass(frozen=True)
class Unread:
    """Deviation of architectures that lack a weight in llama.cpp, which refuses files with tensors that it does not
    read.

    Attributes:
        pattern: of the names of such weights.
    """

    pattern: str

    def __call__(self, config: Config, names: Collection[str]) -> str | None:
        name = next((name for name in names if re.search(self.pattern, name)), None)
        return None if name is None else f"does not load models of this architecture with {name}"


@dataclass(frozen=True)
class NotLoaded:
    """Deviation of architectures that llama.cpp does not have.

    Attributes:
        title: of the models.
    """

    title: str

    def __call__(self, config: Config, names: Collection[str]) -> str | None:
        return f"does not load {self.title} models"


def fixed_head_size(config: Config, names: Collection[str]) -> str | None:
    """Deviation of architectures whose heads have hidden size / heads elements in llama.cpp."""
    if config.head_dim * config.heads == config.hidden:
        return None
    return "does not load models of this architecture whose heads are not as wide as the hidden size together"


def fixed_inner_size(config: Config, names: Collection[str]) -> str | None:
    """Deviation of architectures whose mixers are twice as wide as the hidden states in llama.cpp."""
    if config.inner == 2 * config.hidden:
        return None
    return "does not load models of this architecture whose inner size is not twice the hidden size"


def separate_heads(config: Config, names: Collection[str]) -> str | None:
    """Deviation of architectures that have as many KV heads as query heads in llama.cpp."""
    return None if config.kv_heads == config.heads else "does not load models of this architecture with shared KV heads"


def factors_by_context(config: Config, names: Collection[str]) -> str | None:
    """Deviation of LongRoPE, of which llama.cpp takes the factors for long texts by the size of its context."""
    if config.scaling["type"] != "longrope" or config.context <= config.original:
        return None
    return (
        f"with a context of more than {counted(config.original, 'token')} takes the RoPE factors of long texts for "
        "short ones, too"
    )


def ignored_windows(config: Config, names: Collection[str]) -> str | None:
    """Deviation of architectures whose sliding windows llama.cpp ignores, where texts may be longer than windows."""
    sizes = {window for window in config.windows if window is not None}
    if not sizes or min(sizes) >= config.context:
        return None
    return f"ignores sliding windows; texts of up to {counted(min(sizes), 'token')} are not affected"
