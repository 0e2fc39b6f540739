"""Hyper-parameters and weight bindings that many families share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import (
    FEATURE_EXTRACTION,
    HF,
    SAME,
    TEXT_CLASSIFICATION,
    TEXT_GENERATION,
    TEXT_RANKING,
    Config,
    Key,
    Layout,
    Stored,
    Weight,
)
from ...runtime.contract.hyperparameter import (
    COUNT,
    EVEN,
    MAX_INTEGER,
    NOT_NEGATIVE,
    POSITIVE,
    SIZE,
    Integer,
    Kind,
    Listed,
    ParameterError,
    Real,
    checked,
    flag,
    shown,
    word,
)
from .activation import activation, hf_activation
from .rope.stated_parameters import ALL_LAYERS, FrequencyBase, RopeSection
from .weight_layout import Stacked

POOLING_KEY = "pooling_type"
POOLING_TYPES = {1: "mean", 2: "cls", 3: "lasttoken"}
"""llama.cpp's pooling types that make one vector of a text."""
RANK = 4
"""llama.cpp's pooling type of models that rank documents."""
OF_POOLING = {**dict.fromkeys(POOLING_TYPES, FEATURE_EXTRACTION), RANK: TEXT_RANKING}
ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function")
TOKEN_CLASSIFICATION, QUESTION_ANSWERING = "token-classification", "question-answering"
"""Names of tasks, as Hugging Face's pipelines have them."""
TASKS = (
    ("ForSequenceClassification", TEXT_CLASSIFICATION),
    ("ForTokenClassification", TOKEN_CLASSIFICATION),
    ("ForQuestionAnswering", QUESTION_ANSWERING),
    ("LMHeadModel", TEXT_GENERATION),
    ("Model", FEATURE_EXTRACTION),
)
"""Task of a model, by the ending of its class in config.json; decoders are refused for other tasks."""


@dataclass(frozen=True)
class TaskName:
    """Hyper-parameter: the name of the model's task, by its class in config.json; feature extraction for models that
    are not causal, and for GGUF files with a pooling type that makes one vector of a text; text ranking for those with
    the pooling type of rerankers."""

    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if source.get("is_causal" if names == HF else "attention.causal") is False:
            return FEATURE_EXTRACTION
        if names != HF:
            pooling = checked(POOLING_KEY, source.get(POOLING_KEY, 0), Integer(-1, MAX_INTEGER))
            return OF_POOLING.get(pooling, TEXT_GENERATION)
        kinds = checked("architectures", source.get("architectures") or ["ForCausalLM"], Listed(word))
        return next((task for ending, task in TASKS if kinds[0].endswith(ending)), TEXT_GENERATION)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF and config.task == TEXT_RANKING:
            return {POOLING_KEY: RANK}
        if names == HF or config.task != FEATURE_EXTRACTION:
            return {}
        mode = "mean" if config.values.get("causal") is False else "lasttoken"
        return {POOLING_KEY: next(number for number, name in POOLING_TYPES.items() if name == mode)}


@dataclass(frozen=True)
class Vocabulary:
    """Hyper-parameter: vocabulary size; taken from the embedding if a GGUF file has no tokenizer.

    Attributes:
        key: key in config.json if not ``vocab_size``.
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
"""Hyper-parameters of sequence classifiers: number of classes, and the padding token that marks the end of a text."""
LAYERS = Integer(1, 1024)
"""Number of layers. The deepest published language models have fewer than 200."""

DECODER = (
    TaskName(),
    Vocabulary(),
    Key("context", ("max_position_embeddings", "n_positions", "seq_length"), "context_length", 2048, COUNT),
    Key("hidden", ("hidden_size", "n_embd", "n_embed", "d_model"), "embedding_length", kind=COUNT),
    Key("layers", ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), "block_count", kind=LAYERS),
    Key("heads", ("num_attention_heads", "n_head", "n_heads"), "attention.head_count", kind=COUNT),
    *CLASSES,
)
"""Hyper-parameters of every decoder with attention."""
CAUSAL = Key("causal", "is_causal", "attention.causal", None, flag)
"""Whether a token attends to earlier ones only; False for embedding models made from decoders, which attend to all."""


@dataclass(frozen=True)
class KVHeads(Key):
    """Hyper-parameter: number of KV heads, each shared by equally many query heads."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        keys = [key for key in self.keys(names) if key in source]
        return shared_heads(keys[0] if keys else self.name, super().read(names, source, config), config)


def shared_heads(key: str, value: Any, config: Config) -> int:
    """A number of KV heads, the value of `key`. ParameterError unless it divides the number of query heads."""
    count: int = checked(key, value, COUNT)
    if config.heads % count:
        raise ParameterError(key, f"{config.heads:,} query heads are not divisible by {count:,} KV heads")
    return count


def kv_heads_key(
    hf: str | tuple[str, ...] = "num_key_value_heads", default: Any = lambda config: config.heads
) -> KVHeads:
    """Hyper-parameter: number of KV heads; by default, as many as query heads."""
    return KVHeads("kv_heads", hf, "attention.head_count_kv", default, COUNT)


def _default_head_dim(config: Config) -> int:
    """Default elements of a head: hidden size / heads."""
    if config.hidden % config.heads:
        raise ValueError(f"the hidden size {config.hidden:,} is not divisible by {counted(config.heads, 'head')}")
    return int(config.hidden // config.heads)


KV_HEADS = kv_heads_key()
HEAD_DIM = Key("head_dim", "head_dim", "attention.key_length", _default_head_dim, COUNT)
HF_HEAD_DIM = Key("head_dim", "head_dim", (), _default_head_dim, COUNT)
OWN_HEAD_DIM = Key("head_dim", (), (), _default_head_dim, COUNT)
"""Elements of a head: stated by both config.json and GGUF, by config.json only, or by neither."""
VALUE_DIM = Key("value_dim", (), "attention.value_length", lambda config: config.head_dim, COUNT, at_most=("head_dim",))
HEADS = (KV_HEADS, HEAD_DIM, VALUE_DIM)
"""Grouped-query attention with lengths of heads that both config.json and GGUF state."""
FUSED = Key("fused", (), (), lambda config: (config.heads + 2 * config.kv_heads) * config.head_dim)
"""Rows of the fused query, key and value matrix."""
INTERMEDIATE = Key("intermediate", "intermediate_size", "feed_forward_length", kind=COUNT)
DOUBLE = Key("double", (), (), lambda config: 2 * config.intermediate)
"""Rows of the fused gate and up matrix."""
RMS_EPS = Key("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6, NOT_NEGATIVE)
RMS_EPS_5 = Key("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5, NOT_NEGATIVE)
LAYER_EPS = Key(
    "eps", ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE
)
FREQUENCY_BASE = Real(1, above=True)
"""Valid range of the RoPE frequency base."""
OLDER_LAYER_EPS = replace(LAYER_EPS, hf=("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"))
"""The epsilon of layer norms under the key that the classes of older models read, which is written."""


def frequency_base(default: float, section: RopeSection = ALL_LAYERS) -> FrequencyBase:
    """Hyper-parameter: the RoPE frequency base."""
    return FrequencyBase("theta", "rope_theta", "rope.freq_base", default, FREQUENCY_BASE, section=section)


THETA = frequency_base(10000.0)


PATTERN = "attention.sliding_window_pattern"
ROTARY_KEY = "rope.dimension_count"
TOKENS_KEY = "tokenizer.ggml.tokens"
FRACTION = Real(0, 1, above=True)


def sliding_layers(stated: Any, layers: int) -> list[bool]:
    """Whether each layer has a window: from a GGUF file's list, or from a period, where every period-th layer has no
    window (0: all have one)."""
    if not isinstance(stated, list):
        period: int = checked(PATTERN, stated, SIZE)
        return [period == 0 or i % period < period - 1 for i in range(layers)]
    slides: list[bool] = checked(PATTERN, stated, Listed(flag, layers))
    return slides[:layers]


@dataclass(frozen=True)
class Windows:
    """Hyper-parameter: attention window of each layer in keys, or None for full attention.

    Attributes:
        slides: whether layer `i` has a window if config.json has no `layer_types`.
        always: whether GGUF files state 0 for models without windows.
        period: default of GGUF files: every period-th layer has full attention; None if GGUF keys cannot express it.
        explicit: whether GGUF files always list the layers with windows.
        usual: window of a config.json that does not mention it; null there is none.
    """

    slides: Callable[[Config, int], bool] = lambda config, i: True
    always: bool = False
    period: int | None = None
    explicit: bool = False
    usual: int | None = None
    name: str = "windows"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        hf = names == HF
        key = "sliding_window" if hf else "attention.sliding_window"
        window = checked(key, source.get(key, self.usual if hf else None) or 0, SIZE)
        if not window or (hf and source.get("use_sliding_window") is False):
            return [None] * config.layers
        kinds = source.get("layer_types") if hf else None
        if kinds:
            slides = [
                kind == "sliding_attention"
                for kind in checked("layer_types", kinds, Listed(word, config.layers))[: config.layers]
            ]
        elif hf or self.period is None:
            slides = [self.slides(config, i) for i in range(config.layers)]
        else:
            slides = sliding_layers(source.get(PATTERN, self.period), config.layers)
        return [window if each else None for each in slides]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        sizes = {window for window in config.windows if window is not None}
        slides = [window is not None for window in config.windows]
        kinds = ["sliding_attention" if each else "full_attention" for each in slides]
        if names == HF and not sizes:
            listed = {"layer_types": kinds} if self.explicit else {}  # EXAONE 4 divides by a period that it lacks
            return {} if self.usual is None else {"sliding_window": None, **listed}
        if names == HF:
            return {"sliding_window": max(sizes), **({} if all(slides) else {"layer_types": kinds})}
        if not sizes:
            return {"attention.sliding_window": 0} if self.always else {}
        usual = self.period is None or (slides == sliding_layers(self.period, config.layers) and not self.explicit)
        return {"attention.sliding_window": max(sizes), **({} if usual else {PATTERN: slides})}


@dataclass(frozen=True)
class SwitchedWindows(Windows):
    """Hyper-parameter: windows that a config.json has if ``use_sliding_window`` says so, whose default is false."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        if names == HF and not checked("use_sliding_window", source.get("use_sliding_window") or False, flag):
            if "sliding_attention" in (source.get("layer_types") or ()):
                raise ParameterError("layer_types", "has sliding_attention, and use_sliding_window is not true")
            return [None] * config.layers
        return super().read(names, source, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        switch = {"use_sliding_window": True} if names == HF and any(config.windows) else {}
        return {**super().write(names, config), **switch}


@dataclass(frozen=True)
class Fixed:
    """Hyper-parameter that GGUF files do not store, because all published models share its value."""

    name: str
    hf: str
    value: Any
    kind: Kind = POSITIVE

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        said = source.get(self.hf) if names == HF else None
        return self.value if said is None else checked(self.hf, said, self.kind)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        value = getattr(config, self.name)
        if names != HF and value != self.value:
            raise UnsupportedError(
                "E-ARCH-GGUF",
                None,
                f"GGUF files of this architecture cannot store {self.hf}",
                expected=self.value,
                found=value,
            )
        return {self.hf: value} if names == HF else {}


@dataclass(frozen=True)
class ActivationKey(Key):
    """Hyper-parameter: activation, by transformers' names."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        keys = self.keys(names)
        return {keys[0]: hf_activation(config.act)} if keys else {}


def act(default: str, key: str = "hidden_act") -> Key:
    """Hyper-parameter: activation; `key` is the one that transformers reads."""
    return ActivationKey("act", tuple(dict.fromkeys((key, *ACTIVATION_KEYS))), (), default, activation)


@dataclass(frozen=True)
class RotaryFraction:
    """Hyper-parameter: fraction of each head that is rotated; GGUF files store the number of elements, which `ROTARY`
    writes."""

    default: float = 1.0
    name: str = "rotary_fraction"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        if names == HF:
            path, nested = ALL_LAYERS.stated(source)
            stated = [(f"{path}.{PARTIAL[0]}", nested.get(PARTIAL[0])), *((key, source.get(key)) for key in PARTIAL)]
            found = next((each for each in stated if each[1] is not None), None)
            return self.default if found is None else float(checked(*found, FRACTION))
        size = source.get(ROTARY_KEY)
        if size is None:
            return self.default
        count: int = checked(ROTARY_KEY, size, EVEN)
        part = count / config.head_dim
        return part if int(part * config.head_dim) == count else math.nextafter(part, math.inf)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {PARTIAL[0]: config.rotary_fraction} if names == HF else {}


PARTIAL = ("partial_rotary_factor", "rope_pct", "rotary_pct")


def partial(default: float = 1.0) -> RotaryFraction:
    """Hyper-parameter: fraction of each head that is rotated; read after ``head_dim``."""
    return RotaryFraction(default)


ROTARY = Key(
    "rotary", (), ROTARY_KEY, lambda config: int(config.rotary_fraction * config.head_dim), EVEN, at_most=("head_dim",)
)
WHOLE_ROTARY = Key("rotary", (), ROTARY_KEY, lambda config: config.head_dim, EVEN, at_most=("head_dim",))
"""Elements of each head that are rotated: the stated fraction, or all by default."""
ROTARY_PAIRS = Key("rotary_pairs", (), (), lambda config: config.rotary // 2)
TOKENS = Key("tokens", (), "vocab_size", lambda config: config.vocab)
"""Vocabulary size, for architectures whose GGUF files store it in addition to the tokens."""


EXPERTS_USED = Key(
    "experts_used", ("num_experts_per_tok", "experts_per_token"), "expert_used_count", kind=COUNT, at_most=("experts",)
)
"""Number of experts each token is routed to."""


def matrix(
    name: str,
    hf: str | tuple[str, ...],
    gguf: str | None,
    *,
    shape: tuple[str | int, ...] | None = None,
    hf_layout: Layout = SAME,
    gguf_layout: Layout = SAME,
    optional: bool = False,
    when: Callable[[Config, int], bool] | None = None,
) -> tuple[Weight, Weight]:
    """Bindings of a linear layer or norm: ``NAME.weight``, and ``NAME.bias`` if the model has one. Names come without
    these suffixes; `gguf` is None if GGUF files do not store it."""
    rows = [
        Weight(
            f"{name}.{kind}",
            tuple(Stored((f"{way}.{kind}",), hf_layout) for way in ((hf,) if isinstance(hf, str) else hf)),
            () if gguf is None else Stored((f"{gguf}.{kind}",), gguf_layout),
            shape=(shape if kind == "weight" else shape[:1]) if shape else None,
            optional=optional or kind == "bias",
            when=when,
        )
        for kind in ("weight", "bias")
    ]
    return rows[0], rows[1]


def experts(
    name: str,
    hf: str,
    gguf: str,
    *,
    shape: tuple[str | int, ...],
    optional: bool = False,
    when: Callable[[Config, int], bool] | None = None,
) -> Weight:
    """Binding of the matrices ``NAME.weight`` [experts, out, in] of all experts; Hugging Face stores one per expert,
    ``{e}``. Names come without suffixes."""
    stored = Stored((f"{hf}.weight",), Stacked())
    return Weight(f"{name}.weight", stored, f"{gguf}.weight", shape=shape, optional=optional, when=when)


GEMMA_ACT = act("gelu_tanh", "hidden_activation")
"""Hyper-parameter: the activation of Gemma 2 and its successors."""
