"""Options of ``quantize`` for networks, and their conversion to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ....runtime.base.errors import UsageError
from ....runtime.base.untrusted.regex import compiled

if TYPE_CHECKING:
    from .request import Request

TYPES = {"int8": "int8", "uint8": "uint8", "int4": "int4", "fp8": "fp8", "fp16": "f16", "f16": "f16", "bf16": "bf16"}
"""Types that the command accepts for networks."""
METHODS = ("minmax", "entropy", "percentile", "mse")
BLOCKS = ("16", "32", "64", "128", "256")
OPTIONS = (
    click.option(
        "--weight-type", type=click.Choice(["int8", "uint8", "int4", "fp8"]), help="Networks: the same as TYPE."
    ),
    click.option(
        "--activation-type",
        type=click.Choice(["none", "int8", "uint8"]),
        help="Networks: none quantizes only the weights.",
    ),
    click.option(
        "--calib",
        metavar="DATA",
        type=click.Path(),
        help="Networks: npz, folder of npz or images, or ranges.json of calibrate.",
    ),
    click.option(
        "--method",
        default="minmax",
        type=click.Choice(METHODS),
        help="Networks: how ranges are computed from the data.",
    ),
    click.option("--per-channel", is_flag=True, help="Networks: one scale per output channel."),
    click.option(
        "--block-size", default="32", type=click.Choice(BLOCKS), help="Networks: number of weights that share a scale."
    ),
    click.option(
        "--reduce-range",
        is_flag=True,
        help="Networks: 7-bit weights; int8 needs them in onnxruntime on AVX2 without VNNI.",
    ),
    click.option("--symmetric", is_flag=True, help="Networks: blocks without zero points."),
    click.option(
        "--quant-format",
        type=click.Choice(["qdq", "qoperator", "nbits"]),
        help="Networks: quantization operators to write.",
    ),
    click.option("--nodes", multiple=True, metavar="RE", help="Networks: only nodes whose name matches."),
    click.option("--exclude-nodes", multiple=True, metavar="RE", help="Networks: skip nodes whose name matches."),
)
DEFAULTS = {
    "weight_type": None,
    "activation_type": None,
    "calib": None,
    "method": "minmax",
    "per_channel": False,
    "block_size": "32",
    "symmetric": False,
    "reduce_range": False,
    "quant_format": None,
    "nodes": (),
    "exclude_nodes": (),
}
"""Default values of `OPTIONS`."""
WEIGHTS_ONLY = (
    "tensor_type",
    "tensor_type_file",
    "recipe",
    "pure",
    "leave_output_tensor",
    "output_tensor_type",
    "token_embedding_type",
    "group_size",
    "target_bpw",
    "target_size",
    "save_recipe",
    "imatrix",
    "include_weights",
    "exclude_weights",
    "prune_layers",
    "keep_split",
    "override_kv",
    "lora",
    "max_device_memory",
)
"""Options that choose types for tensors by name, which networks do not have."""
FORMS = {
    "dynamic": ("qoperator",),
    "static": ("qdq", "qoperator"),
    "blocks": ("nbits", "qdq"),
    "float8": ("qdq",),
    "half": (),
}
"""The formats that can be written for a kind of quantization, the usual one first."""


def refuse_network_options(values: dict[str, Any]) -> None:
    """UsageError where a model without nodes is to be quantized with options for networks."""
    given = [name for name, default in DEFAULTS.items() if values[name] != default]
    if given:
        hint = "Use --tensor-type to choose types of single tensors"
        why = f"--{given[0].replace('_', '-')} is for networks, this model has no graph"
        raise UsageError("E-OPTION-NODES", None, why, hint=hint)


def request(type_name: str | None, values: dict[str, Any]) -> Request:
    """The request that options stand for; UsageError where they contradict each other."""
    from .request import Request

    given = [name for name in WEIGHTS_ONLY if values[name]]
    if given:
        hint = "Choose nodes with --nodes and --exclude-nodes"
        why = f"--{given[0].replace('_', '-')} is for models without a graph, this one is a network"
        raise UsageError("E-OPTION-NODES", None, why, hint=hint)
    if values.get("device", "cpu") != "cpu":
        hint = "calibrate --device computes ranges on a GPU, for use with --calib"
        raise UsageError("E-OPTION-NODES", None, "--device is for encoding blocks, this model is a network", hint=hint)
    type = _type(type_name, values["weight_type"])
    kind = _kind(type, values["activation_type"], values["calib"])
    form = values["quant_format"]
    if form is not None and form not in FORMS[kind]:
        why = f"--quant-format {form} is not written for this"
        raise UsageError("E-OPTION-NODES", None, why, expected=" or ".join(FORMS[kind]) or "none")
    if values["per_channel"] and kind == "blocks":
        why = "--per-channel has no effect with blocks, which have a scale each"
        raise UsageError("E-OPTION-NODES", None, why, hint="Use --block-size to choose their length")
    if values["reduce_range"] and kind not in ("dynamic", "static"):
        why = f"--reduce-range is for int8 and uint8 with quantized activations, not for {type}"
        raise UsageError("E-OPTION-NODES", None, why, hint="Omit --reduce-range")
    for text in (*values["nodes"], *values["exclude_nodes"]):
        compiled(text)
    activation = values["activation_type"] if values["activation_type"] in ("int8", "uint8") else "uint8"
    return Request(
        type,
        kind,
        activation,
        form or (FORMS[kind] or ("",))[0],
        int(values["block_size"]),
        per_channel=values["per_channel"],
        symmetric=values["symmetric"],
        nodes=values["nodes"],
        excluded=values["exclude_nodes"],
        no_fallback=values["no_fallback"],
        reduce_range=values["reduce_range"],
        allow_requantize=values["allow_requantize"],
    )


def _type(name: str | None, weight_type: str | None) -> str:
    type = TYPES.get(name.lower()) if name is not None else weight_type
    if type is None or weight_type not in (None, type):
        why = (
            f"{name} is not a type for networks"
            if type is None and name
            else "TYPE and --weight-type differ"
            if type
            else "missing TYPE"
        )
        raise UsageError("E-QUANT-TYPE", None, why, expected=", ".join(sorted({"fp16", *TYPES} - {"f16"})))
    return type


def _kind(type: str, activation: str | None, calib: str | None) -> str:
    """The kind of quantization that the types of weights and activations select."""
    if type in ("f16", "bf16"):
        if activation is not None or calib is not None:
            why = f"{type} does not quantize activations; it takes neither --activation-type nor --calib"
            raise UsageError("E-OPTION-NODES", None, why)
        return "half"
    if type in ("int4", "fp8") or activation == "none":
        if activation not in (None, "none") or (type == "fp8" and calib is not None):
            why = f"weights in {type} need float activations"
            raise UsageError("E-OPTION-NODES", None, why, hint="Omit --activation-type and --calib, or use int8")
        return "float8" if type == "fp8" else "blocks"
    if calib is None and activation == "int8":
        why = "dynamically quantized activations are uint8"
        raise UsageError("E-OPTION-NODES", None, why, hint="Pass data with --calib, or use --activation-type uint8")
    return "dynamic" if calib is None else "static"
