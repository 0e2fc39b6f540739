"""Hyper-parameters of denoising UNets and ControlNets, as config.json of diffusers states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.contract.architecture import Config, Key
from ....runtime.contract.hyperparameter import COUNT, EVEN, POSITIVE, Choice, Integer, Kind, Listed, Only, flag, shown
from ..network_hyperparameters import WIDTHS

MAX_STAGES, MAX_LAYERS = 16, 256
LAYERS = Integer(1, MAX_LAYERS)
"""Layers of a stage."""
CROSS_DOWN, PLAIN_DOWN = "CrossAttnDownBlock2D", "DownBlock2D"
CROSS_UP, PLAIN_UP = "CrossAttnUpBlock2D", "UpBlock2D"
CROSS_MIDDLE, PLAIN_MIDDLE = "UNetMidBlock2DCrossAttn", "UNetMidBlock2D"
TEXT_TIME, PROJECTION = "text_time", "projection"
"""Values of `addition_embed_type` (SDXL) and of `class_embed_type` (unCLIP)."""
TRANSFORMERS, REVERSED = "transformer_layers_per_block", "reverse_transformer_layers_per_block"
"""Keys of the transformers' layers on the way down, and on the way up where both differ."""
REFUSED = {
    "attention_type": "default",
    "center_input_sample": False,
    "class_embeddings_concat": False,
    "cross_attention_norm": None,
    "dual_cross_attention": False,
    "encoder_hid_dim": None,
    "encoder_hid_dim_type": None,
    "mid_block_scale_factor": 1,
    "num_attention_heads": None,
    "resnet_out_scale_factor": 1,
    "resnet_skip_time_act": False,
    "resnet_time_scale_shift": "default",
    "time_embedding_act_fn": None,
    "time_embedding_type": "positional",
    "timestep_post_act": None,
}
"""Settings of diffusers that change the result, with the only supported value of each."""


@dataclass(frozen=True)
class Several:
    """A kind of one value, or of a list of up to `most` values."""

    kind: Kind
    most: int = MAX_LAYERS

    def __call__(self, value: Any) -> Any:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return Listed(self.kind, 1, self.most)(value) if listed else self.kind(value)


def each_stage(kind: Kind) -> Kind:
    """The kind of one value for all stages, or a list with a value for each stage."""
    return Several(kind, MAX_STAGES)


def stage_kinds(*names: str) -> Kind:
    """The kind of a list with the class of each stage's block."""
    return Listed(Choice(names), 1, MAX_STAGES)


KEYS = (
    Key("channels", "in_channels", default=4, kind=COUNT),
    Key("widths", "block_out_channels", default=[320, 640, 1280, 1280], kind=WIDTHS),
    Key(
        "down_blocks",
        "down_block_types",
        default=[CROSS_DOWN, CROSS_DOWN, CROSS_DOWN, PLAIN_DOWN],
        kind=stage_kinds(CROSS_DOWN, PLAIN_DOWN),
    ),
    Key("mid_block", "mid_block_type", default=CROSS_MIDDLE, kind=Choice((CROSS_MIDDLE, PLAIN_MIDDLE)), null=None),
    Key("depth", "layers_per_block", default=2, kind=each_stage(LAYERS)),
    Key("transformers", TRANSFORMERS, default=1, kind=each_stage(Several(LAYERS))),
    Key("heads", "attention_head_dim", default=8, kind=each_stage(COUNT)),
    Key("context", "cross_attention_dim", default=1280, kind=each_stage(COUNT), null=0),
    Key("only_cross", "only_cross_attention", default=False, kind=each_stage(flag)),
    Key("linear_projection", "use_linear_projection", default=False, kind=flag),
    Key("upcast", "upcast_attention", default=False, kind=flag),
    Key("groups", "norm_num_groups", default=32, kind=COUNT, null=0),
    Key("eps", "norm_eps", default=1e-5, kind=POSITIVE),
    Key("act", "act_fn", default="silu", kind=Choice(("silu", "gelu", "relu", "mish"))),
    Key("down_padding", "downsample_padding", default=1, kind=Integer(0, 1)),
    Key("cosines_first", "flip_sin_to_cos", default=True, kind=flag),
    Key("frequency_shift", "freq_shift", default=0, kind=Integer(0, 1)),
    Key("class_embedding", "class_embed_type", default=None, kind=Choice((PROJECTION,))),
    Key("classes", "num_class_embeds", default=None, kind=COUNT),
    Key("addition", "addition_embed_type", default=None, kind=Choice((TEXT_TIME,))),
    Key("addition_time", "addition_time_embed_dim", default=None, kind=EVEN),
    Key("addition_width", "projection_class_embeddings_input_dim", default=None, kind=COUNT),
)
"""Hyper-parameters of both. `heads` is the number of heads, which diffusers calls `attention_head_dim`; `upcast` has no
effect on f32."""


UP_KEYS = (
    Key(
        "up_blocks",
        "up_block_types",
        default=[PLAIN_UP, CROSS_UP, CROSS_UP, CROSS_UP],
        kind=stage_kinds(CROSS_UP, PLAIN_UP),
    ),
    Key("up_transformers", REVERSED, default=None, kind=Listed(Several(LAYERS), 1, MAX_STAGES)),
    Key("out_channels", "out_channels", default=4, kind=COUNT),
    Key("kernel_in", "conv_in_kernel", default=3, kind=Integer(1, 64)),
    Key("kernel_out", "conv_out_kernel", default=3, kind=Integer(1, 64)),
    Key("time_width", "time_embedding_dim", default=None, kind=COUNT),
    Key("guidance_width", "time_cond_proj_dim", default=None, kind=COUNT),
    Key("sample_size", "sample_size", default=None, kind=Several(Integer(1, 1 << 16), 2)),
)
"""Hyper-parameters of UNets alone, most of which say what follows the middle."""


def refused(*settings: str) -> tuple[Key, ...]:
    """Rows for those of `REFUSED` that a class has."""
    return tuple(Key(name, name, default=REFUSED[name], kind=Only(REFUSED[name])) for name in settings)


def per_stage(config: Config, name: str) -> list[Any]:
    """The value of a hyper-parameter in each stage on the way down."""
    value = getattr(config, name)
    return value if isinstance(value, list) else [value] * len(config.widths)


def text_width(config: Config) -> int:
    """Width of the text's embeddings."""
    return int(per_stage(config, "context")[0])


STAGE_KEYS = {
    "down_blocks": "down_block_types",
    "depth": "layers_per_block",
    "transformers": TRANSFORMERS,
    "heads": "attention_head_dim",
    "context": "cross_attention_dim",
    "only_cross": "only_cross_attention",
}
"""Parameters with a value for each stage, and their keys in config.json."""
UP_STAGE_KEYS = {**STAGE_KEYS, "up_blocks": "up_block_types", "up_transformers": REVERSED}
"""Keys of a stage of UNets that increases the resolution."""
DEFAULTS = {"mid_block_type": CROSS_MIDDLE}
"""Keys whose value null differs from that of a key that is left out."""
NOT_NULL = {"groups": "norm_num_groups", "context": "cross_attention_dim"}
"""Parameters that diffusers may leave out of the network with the value null, which is not supported."""


def check_lengths(config: Config, stage_keys: Mapping[str, str]) -> None:
    """FormatError for a list that has not a value for each stage; `stage_keys`: as of `STAGE_KEYS`."""
    stages = len(config.widths)
    for name, key in stage_keys.items():
        given = getattr(config, name)
        if isinstance(given, list) and len(given) != stages:
            raise invalid(config, key, f"a list of {len(given)}", f"{stages} values, as many as block_out_channels")


def check(config: Config, stage_keys: Mapping[str, str] = STAGE_KEYS) -> None:
    """FormatError for values that do not fit each other; `stage_keys`: as of `STAGE_KEYS`."""
    check_lengths(config, stage_keys)
    for name, key in NOT_NULL.items():
        if not getattr(config, name):
            raise invalid(config, key, "null", "a value")
    if len(set(per_stage(config, "context"))) > 1:
        raise invalid(config, "cross_attention_dim", "several widths", "one width for all stages")
    _check_frequencies(config, "block_out_channels", config.widths[0])
    if config.addition:
        _check_width(config, "addition_embed_type")
        if config.addition_time is None or config.addition_time >= config.addition_width:
            raise invalid(config, "addition_time_embed_dim", shown(config.addition_time), "less than the input's width")
        _check_frequencies(config, "addition_time_embed_dim", config.addition_time)
    if config.class_embedding:
        _check_width(config, "class_embed_type")


def _check_frequencies(config: Config, key: str, width: int) -> None:
    """FormatError where sines and cosines cannot have that width."""
    if width % 2 or width <= 2 * config.frequency_shift:
        raise invalid(config, key, f"{width:,} sines and cosines", "an even number above 2")


def _check_width(config: Config, key: str) -> None:
    if config.addition_width is None:
        raise invalid(config, "projection_class_embeddings_input_dim", "null", f"a width, as {key} needs it")


def invalid(config: Config, key: str, found: str, expected: str) -> FormatError:
    """The error for a value of config.json."""
    why, path = f"invalid parameter {key}: {found}", config.values.get("path")
    return FormatError("E-ARCH-KEY", path, why, expected=expected, hint="Correct it in config.json")
