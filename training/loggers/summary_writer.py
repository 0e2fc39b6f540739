"""SummaryWriter: scalars, histograms and texts as an event file of TensorBoard, by the names of
`torch.utils.tensorboard`.

Source: TensorFlow's messages event.proto, summary.proto and tensor.proto.
"""

from __future__ import annotations

import datetime
import os
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from .tensorboard_logger import BYTES, FIXED64, VARINT, TensorBoardLogger, field, varint

__all__ = ["SummaryWriter"]
STRING = 7
"""DT_STRING of TensorFlow's types."""


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

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Write a text under a name."""
        shape = field(2, BYTES, field(1, VARINT, varint(1)))
        tensor = field(1, VARINT, varint(STRING)) + field(2, BYTES, shape) + field(8, BYTES, text_string.encode())
        about = field(1, BYTES, field(1, BYTES, b"text"))
        name = field(1, BYTES, f"{tag}/text_summary".encode())
        self.write_value(name + field(8, BYTES, tensor) + field(9, BYTES, about), global_step)

    def flush(self) -> None:
        """Hand what is written to the system."""
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
