"""SummaryWriter: scalars, histograms, images and texts as an event file of TensorBoard, by the names of
`torch.utils.tensorboard`.

Source: TensorFlow's messages event.proto, summary.proto and tensor.proto.
"""

from __future__ import annotations

import datetime
import io
import os
import socket
import struct
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.plugin.optional_package import optional_package
from ...tensors.core.tensor import Tensor
from .tensorboard_logger import BYTES, FIXED64, VARINT, TensorBoardLogger, field, varint

__all__ = ["SummaryWriter"]
STRING = 7
"""DT_STRING of TensorFlow's types."""
GRID_COLUMNS = 8
"""Images of a row of `add_images`, as in PyTorch's writer."""
LAYOUTS = {"CHW": (1, 2, 0), "HWC": (0, 1, 2), "HW": (0, 1)}
"""Dims of images, and their order that leads to rows, columns, channels."""


class SummaryWriter(TensorBoardLogger):
    """Writes ``events.out.tfevents.*`` into a folder.

    Args:
        log_dir: the folder; None for ``runs/DATE_HOST`` and `comment`.
        options: PyTorch's settings of queues and names of files, without effect.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", **options: Any) -> None:
        if log_dir is None:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        super().__init__(log_dir, "", "")
        self._others: dict[str, SummaryWriter] = {}

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, **options: Any) -> None:
        """Write a number under a name."""
        self.log_metrics({tag: float(scalar_value)}, global_step)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None) -> None:
        """Write numbers whose curves TensorBoard draws into one picture: each goes to a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            name = f"{main_tag.replace('/', '_')}_{tag}"
            if name not in self._others:
                self._others[name] = SummaryWriter(os.path.join(self.log_dir, name))
            self._others[name].add_scalar(main_tag, value, global_step)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None, bins: Any = 64) -> None:
        """Write the distribution of the elements of a tensor.

        Args:
            bins: number of intervals, or what `numpy.histogram` takes.
        """
        array = values.detach().array() if isinstance(values, Tensor) else np.asarray(values)
        array = array.astype(np.float64).reshape(-1)
        if not array.size or not np.isfinite(array).all():
            raise UsageError("E-TRAIN-LOG", None, f"the histogram {tag!r} is of no or of infinite numbers")
        counts, edges = np.histogram(array, bins=64 if bins == "tensorflow" else bins)
        numbers = (array.min(), array.max(), array.size, array.sum(), np.square(array).sum())
        found = b"".join(field(n, FIXED64, struct.pack("<d", value)) for n, value in enumerate(numbers, 1))
        found += field(6, BYTES, edges[1:].astype("<f8").tobytes()) + field(7, BYTES, counts.astype("<f8").tobytes())
        self.write_value(field(1, BYTES, tag.encode()) + field(5, BYTES, found), global_step)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: Any = None, dataformats: str = "CHW"
    ) -> None:
        """Write an image under a name.

        Args:
            img_tensor: bytes, or floats from 0 to 1, of 1, 3 or 4 channels.
            dataformats: the dims of the image: CHW, HWC or HW.

        Raises UsageError for other dims, UnsupportedError without Pillow.
        """
        array = img_tensor.detach().array() if isinstance(img_tensor, Tensor) else np.asarray(img_tensor)
        if dataformats not in LAYOUTS or array.ndim != len(dataformats):
            why = f"the image {tag!r} of shape {list(array.shape)} does not have the dims {dataformats}"
            raise UsageError("E-TRAIN-LOG", None, why, expected=", ".join(LAYOUTS))
        if not array.size:
            raise UsageError("E-TRAIN-LOG", None, f"the image {tag!r} of shape {list(array.shape)} is empty")
        pixels = array[..., None] if dataformats == "HW" else array.transpose(LAYOUTS[dataformats])
        if pixels.dtype != np.uint8:
            pixels = (pixels.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)
        if pixels.shape[2] == 1:
            pixels = pixels.repeat(3, 2)
        if pixels.shape[2] not in (3, 4):
            raise UsageError("E-TRAIN-LOG", None, f"the image {tag!r} has {counted(pixels.shape[2], 'channel')}")
        file = io.BytesIO()
        optional_package("PIL.Image", "writing images").fromarray(pixels).save(file, "PNG")
        self._write_png(tag, file.getvalue(), pixels.shape[2], global_step)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: Any = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Write several images as one, a grid of eight columns at most.

        Args:
            img_tensor: bytes, or floats from 0 to 1, of 1, 3 or 4 channels.
            dataformats: the dims: NCHW or NHWC.

        Raises UsageError for other dims, UnsupportedError without Pillow.
        """
        array = img_tensor.detach().array() if isinstance(img_tensor, Tensor) else np.asarray(img_tensor)
        if dataformats not in ("NCHW", "NHWC") or array.ndim != 4 or not array.size:
            why = f"the images {tag!r} of shape {list(array.shape)} do not have the dims {dataformats}"
            raise UsageError("E-TRAIN-LOG", None, why, expected="NCHW or NHWC")
        images = array if dataformats == "NHWC" else array.transpose(0, 2, 3, 1)
        count, height, width, channels = images.shape
        columns = min(count, GRID_COLUMNS)
        rows = -(-count // columns)
        grid = np.zeros((rows * columns, height, width, channels), array.dtype)
        grid[:count] = images
        tiles = grid.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
        joined = tiles.reshape(rows * height, columns * width, channels)
        self.add_image(tag, joined, global_step, walltime, "HWC")

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True) -> None:
        """Write a figure of matplotlib as an image.

        Args:
            close: whether pyplot forgets the figure.
        """
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi="figure")
        self._write_png(tag, file.getvalue(), 4, global_step)
        if close and "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(figure)

    def _write_png(self, tag: str, png: bytes, channels: int, global_step: int | None) -> None:
        width, height = struct.unpack(">II", png[16:24])
        sizes = b"".join(field(n, VARINT, varint(value)) for n, value in enumerate((height, width, channels), 1))
        image = sizes + field(4, BYTES, png)
        self.write_value(field(1, BYTES, tag.encode()) + field(4, BYTES, image), global_step)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Write a text under a name."""
        shape = field(2, BYTES, field(1, VARINT, varint(1)))
        tensor = field(1, VARINT, varint(STRING)) + field(2, BYTES, shape) + field(8, BYTES, text_string.encode())
        about = field(1, BYTES, field(1, BYTES, b"text"))
        name = field(1, BYTES, f"{tag}/text_summary".encode())
        self.write_value(name + field(8, BYTES, tensor) + field(9, BYTES, about), global_step)

    def flush(self) -> None:
        """Flush written events to the operating system."""
        self.save()
        for each in self._others.values():
            each.flush()

    def close(self) -> None:
        """Close the files."""
        self.finalize("success")
        for each in self._others.values():
            each.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
