"""Rows of SEANet: its hyper-parameters, and its modules in the names of transformers and of the authors' code."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ....runtime.contract.architecture import Key, Row
from ....runtime.contract.hyperparameter import COUNT, Choice, Integer, Kind, Real, flag
from ....runtime.contract.naming import Module
from ...schema.codec_hyperparameters import CHANNELS, STRIDES
from .seanet import MODES


def seanet_keys(**defaults: Any) -> tuple[Row, ...]:
    """Hyper-parameters of SEANet; `defaults` by our names, where they are not EnCodec's."""

    def key(name: str, hf: str, gguf: str, default: Any, kind: Kind) -> Key:
        return Key(name, hf, gguf, defaults.get(name, default), kind)

    return (
        CHANNELS,
        key("hidden", "hidden_size", "embedding_length", 128, COUNT),
        key("filters", "num_filters", "filters", 32, COUNT),
        key("ratios", "upsampling_ratios", "upsampling_ratios", [8, 5, 4, 2], STRIDES),
        key("residual_layers", "num_residual_layers", "residual_layers", 1, Integer(0, 8)),
        key("growth", "dilation_growth_rate", "dilation_growth", 2, Integer(1, 8)),
        key("width", "kernel_size", "kernel_size", 7, COUNT),
        key("last_width", "last_kernel_size", "last_kernel_size", 7, COUNT),
        key("residual_width", "residual_kernel_size", "residual_kernel_size", 3, COUNT),
        key("compress", "compress", "compress", 2, COUNT),
        key("causal", "use_causal_conv", "causal", True, flag),
        key("pad_mode", "pad_mode", "pad_mode", "reflect", Choice(tuple(MODES))),
        key("trim", "trim_right_ratio", "trim_right_ratio", 1.0, Real(0, 1)),
        key("shortcut", "use_conv_shortcut", "shortcut", True, flag),
    )


def conv_modules(part: type[Module], weights: Collection[str], **options: Any) -> tuple[Module, ...]:
    """The convolutions and norms of SEANet, by their names in transformers and in the authors' code.

    Args:
        part: makes a row for a convolution, with further `options`.
        weights: names in the file: the decoder's last layer, whose number follows, is not a transposed convolution.
    """
    numbers = (re.search(r"(?:^|\.)decoder\.(?:layers|model)\.(\d{1,4})\.", name) for name in weights)
    last = max((int(number[1]) for number in numbers if number is not None), default=0)
    plain = [("decoder", str(place)) for place in sorted({0, last})]
    return (
        *(
            part(f"{side}.layers.{{i}}.{inner}.conv", original=f"{side}.model.{{i}}.{inner}.conv.conv", **options)
            for side in ("encoder", "decoder")
            for inner in ("block.{j}", "shortcut")
        ),
        *(
            Module(f"{side}.layers.{{i}}.{inner}norm", original=f"{side}.model.{{i}}.{inner}{module}.norm")
            for side in ("encoder", "decoder")
            for inner, module in (("block.{j}.", "conv"), ("shortcut.", "conv"))
        ),
        *(
            row
            for side, place in (("encoder", "{i}"), *plain)
            for row in (
                part(f"{side}.layers.{place}.conv", original=f"{side}.model.{place}.conv.conv", **options),
                Module(f"{side}.layers.{place}.norm", original=f"{side}.model.{place}.conv.norm"),
            )
        ),
        part("decoder.layers.{i}.conv", original="decoder.model.{i}.convtr.convtr", **options),
        Module("decoder.layers.{i}.norm", original="decoder.model.{i}.convtr.norm"),
    )
