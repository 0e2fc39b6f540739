"""Options of a conversion as plain data, for the command line and `candle_convert.convert`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypedDict, TypeVar

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import did_you_mean
from ...runtime.contract.format import ReadOptions
from ...runtime.passes.precision.cast_weights import AUTO, NAN_POLICIES
from ...runtime.passes.weights.select import Select
from ...runtime.tensor.dtype import DTYPES, dtype_named, plain_name

F = TypeVar("F", bound=Callable[..., Any])


class Changes(TypedDict, total=False):
    """The fields of `Options` as keyword arguments; sizes may be text such as "2GiB"."""

    to: str | None
    source_format: str | None
    read: ReadOptions
    dtype: str | None
    dtypes: tuple[str, ...]
    tensor_types: tuple[tuple[str, str], ...]
    select: Select
    shard_nbytes: int | str | None
    shard_tensors: int | None
    shard_groups: tuple[int, ...] | None
    external_data: str
    opset: int | None
    metadata: dict[str, object]
    nan: str
    allow_overflow: bool
    allow_requantize: bool
    weights_only: bool
    names: str | None
    keep_branches: bool
    with_preprocessing: bool
    tied: str
    verify: str
    keep_quantized: bool | None
    lora: tuple[str, ...]
    attachments: bool
    tokenizer: str | None
    chat_template: str | None
    force: bool | None
    resume: bool
    max_memory: int | str
    threads: int | None
    revision: str | None
    offline: bool


VERIFY_LEVELS = ("none", "sample", "full")
TIED_POLICIES = ("clone", "dedupe", "error")
__all__ = [
    "NAN_POLICIES",
    "TIED_POLICIES",
    "VERIFY_LEVELS",
    "Changes",
    "Options",
    "changed",
    "check_dtypes",
    "takes_options",
]


@dataclass(frozen=True)
class Options:
    """How to convert.

    Attributes:
        to, source_format: format names; None takes the output's suffix and the input's content.
        dtype: dtype name or ``auto`` for floating-point weights, None keeps them.
        dtypes: variants of an ONNX export (f32, f16, q8, q4 ...), each a file in the folder ``onnx`` of the output;
            empty for one file without a folder.
        tensor_types: pairs of name pattern and dtype name.
        select: which weights, under which names.
        shard_nbytes, shard_tensors: the most one output file holds; shard_groups: exactly how many tensors each of them
            holds.
        external_data: where an ONNX model's tensors go (auto, never, always); opset: which one it is written for, None
            for the lowest.
        metadata: keys to set (None removes one).
        allow_overflow: whether more than a thousandth of a cast tensor's values may be beyond the range of the new
            dtype.
        allow_requantize: whether weights that are quantized already may be quantized again.
        weights_only: whether a model goes out as tensors alone where the output cannot say which model they are.
        names: the library whose names weights get (hf, timm, torchvision), None for the output's own; keep_branches:
            whether parallel branches of convolutions stay apart in ONNX files; with_preprocessing: whether ONNX files
            of image models take bytes of pictures and prepare them.
        nan: what NaNs in cast weights do; tied: what names that share bytes do; verify: how much is read back.
        keep_quantized: whether weights that were quantized elsewhere (GPTQ, bitsandbytes ...) go out as they are
            stored; None where nothing changes their values and the output is no GGUF or ONNX.
        lora: adapters of PEFT to merge, each ``DIR`` or ``DIR:STRENGTH``.
        attachments: whether tokenizer and config files travel along; tokenizer: another directory to take them from.
        chat_template: a file to take the chat template from.
        force: whether to replace an existing output: None replaces it unless it is an input, True even then, False (the
            command line without --force) never. The old file stays until the new one is complete.
        resume: go on with a killed run.
        max_memory: bytes that may be held beyond the base; threads: how many write.
    """

    to: str | None = None
    source_format: str | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    dtype: str | None = None
    dtypes: tuple[str, ...] = ()
    tensor_types: tuple[tuple[str, str], ...] = ()
    select: Select = field(default_factory=Select)
    shard_nbytes: int | None = None
    shard_tensors: int | None = None
    shard_groups: tuple[int, ...] | None = None
    external_data: str = "auto"
    opset: int | None = None
    metadata: dict[str, object] = field(default_factory=dict)
    nan: str = "error"
    allow_overflow: bool = False
    allow_requantize: bool = False
    weights_only: bool = False
    names: str | None = None
    keep_branches: bool = False
    with_preprocessing: bool = False
    tied: str = "clone"
    verify: str = "sample"
    keep_quantized: bool | None = None
    lora: tuple[str, ...] = ()
    attachments: bool = True
    tokenizer: str | None = None
    chat_template: str | None = None
    force: bool | None = None
    resume: bool = False
    max_memory: int = 2 * 2**30
    threads: int | None = None
    revision: str | None = None
    offline: bool = False

    def __repr__(self) -> str:
        """The options that differ from their defaults."""
        held = [(each.name, getattr(self, each.name), _default(each)) for each in dataclasses.fields(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={own!r}' for name, own, usual in held if own != usual)})"

    @property
    def blocks(self) -> bool:
        """Whether the nodes of a graph keep quantized weights as blocks where ONNX has operators for that."""
        return self.dtype is None and not self.tensor_types


def check_dtypes(options: Options) -> None:
    """UsageError for an unknown dtype, and for one that takes quantization, which converting alone does not do; nothing
    needs to be read for it."""
    from ..translate.gguf_file_type import BY_NAME

    for option, name in (("--dtype", options.dtype), *(("--tensor-type", name) for _, name in options.tensor_types)):
        if name is None or (name == AUTO and option == "--dtype"):
            continue
        word = plain_name(name)
        if word in BY_NAME:
            word = BY_NAME[word].base
        if word in DTYPES and DTYPES[word].kind == "block":
            hint = (
                f"Use --quantize {name}, or candle-convert quantize IN OUT {name} (candle_convert.quantize in Python)"
            )
            raise UsageError("E-CAST-BLOCK", None, f"{option} only casts, and {name} is a quantized type", hint=hint)
        dtype_named(name, further=BY_NAME)


def takes_options(function: F) -> F:
    """Show the fields of `Options` with their defaults in the signature of a function that takes `Changes`; a
    decorator."""
    signature = inspect.signature(function)
    given = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    names = {each.name for each in given}
    fields = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=_default(each), annotation=each.type)
        for each in dataclasses.fields(Options) if each.name not in names
    ]  # fmt: skip
    function.__signature__ = signature.replace(parameters=[*given, *fields])  # type: ignore[attr-defined]
    return function


def _default(each: dataclasses.Field[Any]) -> Any:
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def changed(options: Options | None, changes: Mapping[str, Any]) -> Options:
    """`options` (or the defaults) with some fields changed; sizes may be text such as "2GiB".

    Raises UsageError for an unknown field, with the nearest one.
    """
    known = [each.name for each in dataclasses.fields(Options)]
    for name in changes:
        if name not in known:
            hint = did_you_mean(name, known, f"Options: {', '.join(known)}")
            raise UsageError("E-OPTION", None, f"unknown option {name!r}", hint=hint)
    from ...runtime.base.limits import size

    plain: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "dtype" and value is not None and not isinstance(value, str):
            value = dtype_named(value).name
        plain[name] = size(value) if name in ("max_memory", "shard_nbytes") and isinstance(value, str) else value
    return dataclasses.replace(options or Options(), **plain)
