"""Options of a conversion as plain data, for the command line and `candle_convert.convert`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.limits import size
from ...runtime.base.nearest_name import did_you_mean
from ..translate.translation_options import TranslationOptions, option

if TYPE_CHECKING:
    from ...runtime.contract.format import ReadOptions
    from ...runtime.passes.weights.select import Select

F = TypeVar("F", bound=Callable[..., Any])


def _read() -> ReadOptions:
    from ...runtime.contract.format import ReadOptions

    return ReadOptions()


def _select() -> Select:
    from ...runtime.passes.weights.select import Select

    return Select()


@dataclass(frozen=True)
class Options(TranslationOptions):
    """How to convert; options of translation are inherited.

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
        nan: what NaNs in cast weights do; tied: what names that share bytes do; verify: how much is read back.
        keep_quantized: whether weights that were quantized elsewhere (GPTQ, bitsandbytes ...) go out as they are
            stored; None where nothing changes their values and the output is no GGUF or ONNX.
        lora: adapters of PEFT to merge, each ``DIR`` or ``DIR:STRENGTH``.
        tokenizer: another directory to take tokenizer and config files from.
        chat_template: a file to take the chat template from.
        force: whether to replace an existing output: None replaces it unless it is an input, True even then, False (the
            command line without --force) never. The old file stays until the new one is complete.
        resume: go on with a killed run.
        max_memory: bytes that may be held beyond the base; threads: how many write.
    """

    to: str | None = option(
        None, "-t", "--to", metavar="FMT", type="format", help="Output format (default: by the suffix of OUT)."
    )
    source_format: str | None = option(
        None,
        "--from",
        "source_format",
        metavar="FMT",
        type="format",
        help="Input format (default: detected by content).",
    )
    read: ReadOptions = option(_read)
    dtype: str | None = option(
        None,
        "--dtype",
        "--outtype",
        group="values",
        metavar="DTYPE",
        type="dtype",
        help="Dtype of float weights: f32, f16, bf16, f8_e4m3 ..., auto (16 bits).",
    )
    dtypes: tuple[str, ...] = option(
        (),
        "--dtypes",
        metavar="DTYPE,...",
        help="Write ONNX in several precisions into OUT/onnx: f32, f16, q8, int8, uint8, q4, q4f16.",
    )
    tensor_types: tuple[tuple[str, str], ...] = option(
        (),
        "--tensor-type",
        group="values",
        multiple=True,
        metavar="RE=DTYPE",
        help="Dtype of weights whose name matches.",
    )
    select: Select = option(_select)
    shard_nbytes: int | None = option(
        None,
        "--shard-size",
        "--split-max-size",
        "--max-shard-size",
        group="sharding",
        takes_size=True,
        metavar="SIZE",
        help="Maximum size of an output file: 5GB.",
    )
    shard_tensors: int | None = option(
        None,
        "--shard-tensors",
        group="sharding",
        minimum=1,
        metavar="N",
        help="Maximum number of tensors in an output file.",
    )
    shard_groups: tuple[int, ...] | None = option(None)
    external_data: str = option(
        "auto",
        "--external-data",
        group="graphs",
        choices=("auto", "never", "always"),
        help="Write ONNX tensors to separate files.",
    )
    opset: int | None = option(
        None,
        "--opset",
        group="graphs",
        minimum=1,
        metavar="N",
        help="ONNX opset to write (default: the lowest that fits, at least 17).",
    )
    metadata: dict[str, object] = option(dict, "--metadata", multiple=True, metavar="K=V", help="Set a metadata key.")
    nan: str = option(
        "error", "--nan", group="values", choices=("error", "warn", "keep"), help="How to treat NaN in a cast weight."
    )
    allow_overflow: bool = option(
        False,
        "--allow-overflow",
        group="values",
        help="Write tensors even if over 0.1 % of their elements exceed the range of the new dtype.",
    )
    allow_requantize: bool = option(
        False, "--allow-requantize", help="Quantize weights that are already quantized, which loses quality."
    )
    tied: str = option(
        "clone",
        "--tied",
        group="values",
        choices=("clone", "dedupe", "error"),
        help="How to treat names that share storage.",
    )
    verify: str = option(
        "sample",
        "--verify",
        choices=("none", "sample", "full"),
        help="How much of the output is read back and compared.",
    )
    keep_quantized: bool | None = option(
        None,
        "--keep-quantized/--no-keep-quantized",
        group="values",
        help="Keep GPTQ, AWQ, bitsandbytes ... weights as stored, or dequantize them.",
    )
    lora: tuple[str, ...] = option(
        (),
        "--lora",
        multiple=True,
        metavar="DIR[:STRENGTH]",
        type="path",
        help="Merge a LoRA adapter of PEFT into the weights (repeatable).",
    )
    tokenizer: str | None = option(
        None, "--tokenizer", metavar="DIR", type="path", help="Copy tokenizer and config files from another directory."
    )
    chat_template: str | None = option(
        None, "--chat-template", metavar="FILE", type="path", help="Read the chat template from a file."
    )
    force: bool | None = option(None, "-f", "--force", is_flag=True, help="Replace an existing output.")
    resume: bool = option(False, "--resume", help="Continue an interrupted run.")
    max_memory: int = option(
        "2GiB", "--max-memory", takes_size=True, metavar="SIZE", help="Maximum memory for data (default 2GiB)."
    )
    threads: int | None = option(
        None, "--threads", minimum=1, help="Writer threads (default: the number of cores, at most 4)."
    )
    revision: str | None = option(None, "--revision", metavar="REV", help="Revision of an hf:// repository.")
    offline: bool = option(False, "--offline", help="hf:// from the cache only.")

    def __repr__(self) -> str:
        """The options that differ from their defaults."""
        held = [(each.name, getattr(self, each.name), _default(each)) for each in dataclasses.fields(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={own!r}' for name, own, usual in held if own != usual)})"

    @property
    def blocks(self) -> bool:
        """As long as nothing else gives weights a dtype."""
        return self.dtype is None and not self.tensor_types


FIELDS = {each.name: each for each in dataclasses.fields(Options)}
"""The fields of `Options` by name."""


def check_dtypes(options: Options) -> None:
    """UsageError for an unknown dtype, and for one that takes quantization, which converting alone does not do; nothing
    needs to be read for it."""
    from ...runtime.passes.precision.cast_weights import AUTO
    from ...runtime.tensor.dtype import DTYPES, dtype_named, plain_name
    from ..translate.gguf_file_type import BY_NAME

    for flag, name in (("--dtype", options.dtype), *(("--tensor-type", name) for _, name in options.tensor_types)):
        if name is None or (name == AUTO and flag == "--dtype"):
            continue
        word = plain_name(name)
        if word in BY_NAME:
            word = BY_NAME[word].base
        if word in DTYPES and DTYPES[word].kind == "block":
            hint = (
                f"Use --quantize {name}, or candle-convert quantize IN OUT {name} (candle_convert.quantize in Python)"
            )
            raise UsageError("E-CAST-BLOCK", None, f"{flag} only casts, and {name} is a quantized type", hint=hint)
        dtype_named(name, further=BY_NAME)


def takes_options(function: F) -> F:
    """Show the fields of `Options` with their defaults in the signature of a function that takes `Changes`, which
    type checkers alone know; a decorator."""
    signature = inspect.signature(function)
    *given, changes = signature.parameters.values()
    function.__annotations__[changes.name] = Any
    names = {each.name for each in given}
    fields = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=_default(each), annotation=each.type)
        for each in FIELDS.values() if each.name not in names
    ]  # fmt: skip
    function.__signature__ = signature.replace(parameters=[*given, *fields])  # type: ignore[attr-defined]
    return function


def _default(each: dataclasses.Field[Any]) -> Any:
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def changed(options: Options | None, changes: Mapping[str, Any]) -> Options:
    """`options` (or the defaults) with some fields changed; sizes may be text such as "2GiB".

    Raises UsageError for an unknown field, with the nearest one.
    """
    known = FIELDS
    for name in changes:
        if name not in known:
            hint = did_you_mean(name, list(known), f"Options: {', '.join(known)}")
            raise UsageError("E-OPTION", None, f"unknown option {name!r}", hint=hint)
    from ...runtime.tensor.dtype import dtype_named

    plain: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "dtype" and value is not None and not isinstance(value, str):
            value = dtype_named(value).name
        plain[name] = size(value) if known[name].metadata["takes_size"] and isinstance(value, str) else value
    return dataclasses.replace(options or Options(), **plain)
