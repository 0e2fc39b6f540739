"""Preview of a picture that is being drawn: a small file that is kept up to date, and the terminal."""

from __future__ import annotations

import contextlib
import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..console.atomic_replace import replacing
from ..console.output import current
from ..console.stdio import STREAM
from .terminal_picture import protocol, shown

if TYPE_CHECKING:
    import numpy as np

INTERVAL = 2.0
"""Seconds between two previews."""
COLUMNS = 48


class Preview:
    """Shows latents as small pictures while the block runs; the file is removed at its end.

    Args:
        model: a text-to-image model.
        output: the file of the picture.
        shown: whether anything is shown.
    """

    def __init__(self, model: Any, output: str, *, shown: bool) -> None:
        self._model, self._on = model, shown
        self._path = None if output == STREAM else f"{os.path.splitext(output)[0]}.preview.png"
        self._last = 0.0

    def __enter__(self) -> Preview:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on and self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def update(self, latents: np.ndarray) -> None:
        """Show latents [batch, channels, height, width], unless the last ones were shown a moment ago."""
        if not self._on or time.monotonic() - self._last < INTERVAL:
            return
        picture = self._model.preview(latents[:1])
        if self._path is not None:
            with replacing(self._path, force=True) as file:
                picture.save(file, "PNG")
        current().picture(shown(picture, protocol(), COLUMNS))
        self._last = time.monotonic()
