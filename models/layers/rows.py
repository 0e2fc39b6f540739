"""Rows that many families share: hyper-parameters, and weights whose names follow a pattern."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...runtime.arch import HF, SAME, Config, Key, Layout, Stored, Weight, dig
from ...runtime.parameter import (
    COUNT,
    EVEN,
    MAX_INTEGER,
    NOT_NEGATIVE,
    SIZE,
    Integer,
    Listed,
    ParameterError,
    Real,
    checked,
    flag,
    shown,
    word,
)
from ...runtime.record import dataclass
from .layouts import Stacked
from .mlp import activation, spelled
from .rope import FREQUENCY_BASE

ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function")
TASKS = (("ForSequenceClassification", "classification"), ("LMHeadModel", "lm"), ("Model", "hidden"))


@dataclass(frozen=True)
class Task:
    """Row of what a model is for, by its class in config.json: ``lm`` (logits), ``classification``, or ``hidden`` (hidden states)."""

    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names != HF:
            return "lm"
        kinds = checked("architectures", source.get("architectures") or ["ForCausalLM"], Listed(word))
        return next((task for ending, task in TASKS if kinds[0].endswith(ending)), "lm")

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Vocabulary:
    """Row of the number of tokens; that of the embedding where a GGUF file has no tokenizer.

    Attributes:
        key: of a config.json, where it has another than ``vocab_size``.
    """

    name: str = "vocab"
    key: str = "vocab_size"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        if names == HF or "vocab_size" in source:
            key = self.key if self.key in source else "vocab_size"
            count: int = checked(key, source[key], COUNT)
            return count
        tokens = source.get(TOKENS_KEY)
        if not isinstance(tokens, Sequence | None) or isinstance(tokens, str | bytes):
            raise ParameterError(TOKENS_KEY, f"{shown(tokens)} is not a list")
        return None if tokens is None else len(tokens)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: config.vocab} if names == HF else {}


CLASSES = (Key("labels", "num_labels", (), None, COUNT), Key("pad", "pad_token_id", (), None, Integer(-MAX_INTEGER)))
"""What models that classify texts need to know: the number of classes, and the token behind which a text has ended."""
LAYERS = Integer(1, 1024)
"""Number of layers. The deepest published language models have fewer than 200."""

DECODER = (
    Task(),
    Vocabulary(),
    Key("context", ("max_position_embeddings", "n_positions", "seq_length"), "context_length", 2048, COUNT),
    Key("hidden", ("hidden_size", "n_embd", "d_model"), "embedding_length", kind=COUNT),
    Key("layers", ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), "block_count", kind=LAYERS),
    Key("heads", ("num_attention_heads", "n_head", "n_heads"), "attention.head_count", kind=COUNT),
    *CLASSES,
)
"""What every decoder with attention has."""


@dataclass(frozen=True)
class KeyHeads(Key):
    """Row of the number of heads of keys and values, each of which as many heads of queries share."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        keys = [key for key in self.keys(names) if key in source]
        return shared_heads(keys[0] if keys else self.name, super().read(names, source, config), config)


def shared_heads(key: str, value: Any, config: Config) -> int:
    """A number of heads of keys and values, said by `key`, that the heads of queries can share."""
    count: int = checked(key, value, COUNT)
    if config.heads % count:
        raise ParameterError(key, f"{config.heads:,} heads of queries cannot share {count:,} heads of keys and values")
    return count


def key_heads(hf: str | tuple[str, ...] = "num_key_value_heads",
              default: Any = lambda config: config.heads) -> KeyHeads:
    """Row of the number of heads of keys and values; as many as of queries unless `default` says otherwise."""
    return KeyHeads("kv_heads", hf, "attention.head_count_kv", default, COUNT)


def _even_share(config: Config) -> int:
    """Elements of a head where no file says them."""
    if config.hidden % config.heads:
        raise ValueError(f"the width {config.hidden:,} is not a multiple of the {config.heads:,} heads")
    return int(config.hidden // config.heads)


KV_HEADS = key_heads()
HEAD_DIM = Key("head_dim", "head_dim", "attention.key_length", _even_share, COUNT)
HF_HEAD_DIM = Key("head_dim", "head_dim", (), _even_share, COUNT)
OWN_HEAD_DIM = Key("head_dim", (), (), _even_share, COUNT)
"""Elements of a head: as files of both kinds say them, as a config.json alone does, or as none does."""
VALUE_DIM = Key("value_dim", (), "attention.value_length", lambda config: config.head_dim, COUNT, most=("head_dim",))
FUSED = Key("fused", (), (), lambda config: (config.heads + 2 * config.kv_heads) * config.head_dim)
"""Rows of queries, keys and values in one matrix."""
INTERMEDIATE = Key("intermediate", "intermediate_size", "feed_forward_length", kind=COUNT)
DOUBLE = Key("double", (), (), lambda config: 2 * config.intermediate)
"""Rows of gates, and of what they gate, in one matrix."""
RMS_EPS = Key("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6, NOT_NEGATIVE)
RMS_EPS_5 = Key("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5, NOT_NEGATIVE)
LAYER_EPS = Key("eps", ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), "attention.layer_norm_epsilon", 1e-5,
                NOT_NEGATIVE)
THETA = Key("theta", ("rope_theta", "rope_parameters.rope_theta"), "rope.freq_base", 10000.0, FREQUENCY_BASE)


PATTERN = "attention.sliding_window_pattern"
ROTARY_KEY = "rope.dimension_count"
TOKENS_KEY = "tokenizer.ggml.tokens"
FRACTION = Real(0, 1, above=True)


def _sliding(said: Any, layers: int) -> list[bool]:
    """Which layers have a window, from a GGUF file's list of them or the number of layers of which the last has none (0 for never)."""
    if not isinstance(said, list):
        period: int = checked(PATTERN, said, SIZE)
        return [period == 0 or i % period < period - 1 for i in range(layers)]
    slides: list[bool] = checked(PATTERN, said, Listed(flag, layers))
    return slides[:layers]


@dataclass(frozen=True)
class Windows:
    """Row of how far back each layer looks: a number of keys, or None for all of them.

    Attributes:
        slides: whether layer `i` has a window where config.json has no `layer_types`.
        always: whether GGUF files say 0 where there is none.
        period: in GGUF files that do not say otherwise, the last of so many layers has no window; None where they cannot say it.
        told: whether they always say which layers have one.
    """

    slides: Callable[[Config, int], bool] = lambda config, i: True
    always: bool = False
    period: int | None = None
    told: bool = False
    name: str = "windows"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        hf = names == HF
        key = "sliding_window" if hf else "attention.sliding_window"
        window = checked(key, source.get(key) or 0, SIZE)
        if not window or (hf and source.get("use_sliding_window") is False):
            return [None] * config.layers
        kinds = source.get("layer_types") if hf else None
        if kinds:
            slides = [kind == "sliding_attention" for kind in checked("layer_types", kinds, Listed(word, config.layers))[: config.layers]]
        elif hf or self.period is None:
            slides = [self.slides(config, i) for i in range(config.layers)]
        else:
            slides = _sliding(source.get(PATTERN, self.period), config.layers)
        return [window if each else None for each in slides]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        sizes = {window for window in config.windows if window is not None}
        slides = [window is not None for window in config.windows]
        if names == HF:
            kinds = ["sliding_attention" if each else "full_attention" for each in slides]
            return {"sliding_window": max(sizes), **({} if all(slides) else {"layer_types": kinds})} if sizes else {}
        if not sizes:
            return {"attention.sliding_window": 0} if self.always else {}
        usual = self.period is None or (slides == _sliding(self.period, config.layers) and not self.told)
        return {"attention.sliding_window": max(sizes), **({} if usual else {PATTERN: slides})}


@dataclass(frozen=True)
class Activated(Key):
    """Row of the activation, by transformers' names in a config.json."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.keys(names)[0]: spelled(config.act)} if names == HF else {}


def act(default: str, key: str = "hidden_act") -> Key:
    """Row of the activation; `key` is the one that transformers reads it from."""
    return Activated("act", tuple(dict.fromkeys((key, *ACTIVATION_KEYS))), (), default, activation)


@dataclass(frozen=True)
class Partial:
    """Row of the part of each head that is turned; GGUF files give the number of elements, which `ROTARY` writes."""

    default: float = 1.0
    name: str = "turned"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        if names == HF:
            found = next(((key, value) for key in PARTIAL if (value := dig(source, key)) is not None), None)
            return self.default if found is None else float(checked(*found, FRACTION))
        size = source.get(ROTARY_KEY)
        if size is None:
            return self.default
        count: int = checked(ROTARY_KEY, size, EVEN)
        part = count / config.head_dim
        return part if int(part * config.head_dim) == count else math.nextafter(part, math.inf)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {PARTIAL[0]: config.turned} if names == HF else {}


PARTIAL = ("partial_rotary_factor", "rope_parameters.partial_rotary_factor", "rope_pct", "rotary_pct")


def partial(default: float = 1.0) -> Partial:
    """Row of the part of each head that is turned, behind that of ``head_dim``."""
    return Partial(default)


ROTARY = Key("rotary", (), ROTARY_KEY, lambda config: int(config.turned * config.head_dim), EVEN, most=("head_dim",))
WHOLE_ROTARY = Key("rotary", (), ROTARY_KEY, lambda config: config.head_dim, EVEN, most=("head_dim",))
"""Elements of each head that are rotated: a part of them, or all of them where no file says otherwise."""
ROTARY_PAIRS = Key("rotary_pairs", (), (), lambda config: config.rotary // 2)
TOKENS = Key("tokens", (), "vocab_size", lambda config: config.vocab)
"""The size of the vocabulary for GGUF files that say it beside their tokens."""


EXPERTS_USED = Key("experts_used", ("num_experts_per_tok", "experts_per_token"), "expert_used_count", kind=COUNT,
                   most=("experts",))
"""Experts that each token is sent to."""


def matrix(
    name: str, hf: str | tuple[str, ...], gguf: str | None, *, shape: tuple[str | int, ...] | None = None, hf_layout: Layout = SAME,
    gguf_layout: Layout = SAME, optional: bool = False, when: Callable[[Config, int], bool] | None = None,
) -> tuple[Weight, Weight]:
    """Rows of a linear layer or norm: ``NAME.weight``, and ``NAME.bias`` where the model has one. Names are given without these endings;
    `gguf` is None where such files do not have it.
    """
    rows = [
        Weight(f"{name}.{kind}", tuple(Stored((f"{way}.{kind}",), hf_layout) for way in ((hf,) if isinstance(hf, str) else hf)),
               () if gguf is None else Stored((f"{gguf}.{kind}",), gguf_layout),
               shape=(shape if kind == "weight" else shape[:1]) if shape else None, optional=optional or kind == "bias", when=when)
        for kind in ("weight", "bias")
    ]  # fmt: skip
    return rows[0], rows[1]


def experts(name: str, hf: str, gguf: str, *, shape: tuple[str | int, ...], when: Callable[[Config, int], bool] | None = None) -> Weight:
    """Row of the matrices ``NAME.weight`` [experts, out, in] of all experts; Hugging Face has one for each, ``{e}``. Names without endings."""
    return Weight(f"{name}.weight", Stored((f"{hf}.weight",), Stacked()), f"{gguf}.weight", shape=shape, when=when)
