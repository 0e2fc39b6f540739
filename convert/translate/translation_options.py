"""How a model is translated to the names of another format or to a graph: the first options of a conversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.limits import size


def option(
    default: Any,
    *flags: str,
    takes_size: bool = False,
    minimum: int | None = None,
    choices: Sequence[str] | None = None,
    group: str | None = None,
    is_setting: bool = False,
    **click_arguments: Any,
) -> Any:
    """A field of `Options`; the command line and the keyword arguments of Python are made from it.

    Args:
        default: its value, or a function that makes it; of an option that takes sizes, bytes or text such as "2GiB".
        flags: names on the command line; none for options of Python alone.
        takes_size: whether Python takes text such as "2GiB" for bytes, too.
        minimum: the lowest value of an integer.
        choices: the values of a string.
        group: commands that take this group of options take this one.
        is_setting: whether the value is a hyper-parameter of the network that is written, by the name of the field.
        click_arguments: further arguments of `click.option`; ``type`` is a key of `shared_options.TYPES`.
    """
    metadata = {
        "flags": flags,
        "default": default,
        "takes_size": takes_size,
        "minimum": minimum,
        "choices": choices,
        "group": group,
        "is_setting": is_setting,
        "click_arguments": click_arguments,
    }
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=size(default) if takes_size and default is not None else default, metadata=metadata)


@dataclass(frozen=True)
class TranslationOptions:
    """The options of a conversion that translation reads.

    Attributes:
        attachments: whether tokenizer and config files travel along.
        weights_only: whether a model goes out as tensors alone where the output cannot say which model they are.
        names: the library whose names weights get in files without nodes, of `CONVENTIONS`; None for what the output is
            read by.
        keep_branches: whether parallel branches of convolutions stay apart in ONNX files.
        with_preprocessing: whether ONNX files of image models take bytes of pictures and prepare them.
    """

    attachments: bool = option(True, "--no-tokenizer", help="Do not copy tokenizer and config files.")
    weights_only: bool = option(
        False,
        "--weights-only",
        group="values",
        help="Write the tensors even if OUT cannot express the model's architecture.",
    )
    names: str | None = option(
        None,
        "--names",
        group="values",
        choices=("hf", "timm", "torchvision", "original"),
        help="Name the weights of an image or audio model as this library does (original: as its authors do).",
    )
    keep_branches: bool = option(
        False,
        "--keep-branches",
        group="values",
        is_setting=True,
        help="Keep the branches of RepVGG, MobileOne and FastViT apart in ONNX files.",
    )
    with_preprocessing: bool = option(
        False,
        "--with-preprocessing",
        group="values",
        help="Make an ONNX image model take raw pixels, and resize and normalize them.",
    )

    @property
    def network_settings(self) -> dict[str, Any]:
        """The options that are hyper-parameters of the network that is written, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata["is_setting"]}

    @property
    def blocks(self) -> bool:
        """Whether the nodes of a graph keep quantized weights as blocks where ONNX has operators for that."""
        return True
