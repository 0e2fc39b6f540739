"""ONNX files of ultralytics: what their metadata say of the task, the labels and the size of pictures. Exports of this
project say it in the same keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from .checked_settings import MAX_EDGE

OWN = "candle-convert"
AUTHORS = ("Ultralytics", OWN)
DETECTORS = ("detect", "pose")
NAME = re.compile(r"(\d{1,6}): (?:'([^']*)'|\"([^\"]*)\")")
SIZE = re.compile(r"\[(\d{1,5}), (\d{1,5})\]")
USUAL = 640


@dataclass(frozen=True)
class Export:
    """The metadata of an export.

    Attributes:
        task: ``detect``, ``pose``, ``segment`` ...
        labels: names of classes in the order of their numbers.
        size: height and width of the model's input.
    """

    task: str
    labels: tuple[str, ...]
    size: tuple[int, int]


def export_keys(labels: Sequence[str], size: Sequence[int], task: str) -> dict[str, str]:
    """The metadata that `export_of` reads; `task` is one of `DETECTORS`."""
    quoted = (f"{number}: {_quoted(label)}" for number, label in enumerate(labels))
    return {"author": OWN, "task": task, "imgsz": str(list(size)), "names": f"{{{', '.join(quoted)}}}"}


def _quoted(label: str) -> str:
    quote = '"' if "'" in label else "'"
    return quote + label.replace(quote, "") + quote


def export_of(metadata: Mapping[str, Any]) -> Export | None:
    """The export that an ONNX file's metadata describes; None for files of other programs."""
    task, names = metadata.get("task"), metadata.get("names")
    if metadata.get("author") not in AUTHORS or not isinstance(task, str) or not isinstance(names, str):
        return None
    labels = {int(number): single or double for number, single, double in NAME.findall(names)}
    ordered = tuple(labels.get(number, f"LABEL_{number}") for number in range(len(labels)))
    return Export(task, ordered, size_of(metadata.get("imgsz")) or (USUAL, USUAL))


def size_of(said: Any) -> tuple[int, int] | None:
    """Height and width from a text such as ``[640, 640]``; None for others."""
    found = SIZE.fullmatch(str(said))
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    return size if all(0 < edge <= MAX_EDGE for edge in size) else None
