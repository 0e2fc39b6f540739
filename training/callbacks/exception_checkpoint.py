"""OnExceptionCheckpoint: a checkpoint where training ends by an error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


class OnExceptionCheckpoint(Callback):
    """Writes a checkpoint where training ends by an error or by Ctrl-C.

    Args:
        dirpath: folder of the file.
        filename: its name without suffix.
    """

    def __init__(self, dirpath: str | os.PathLike[str], filename: str = "on_exception") -> None:
        if not filename:
            raise UsageError("E-OPTION", None, "filename is empty", expected="a name without suffix")
        self.dirpath, self.filename = dirpath, filename

    @property
    def ckpt_path(self) -> str:
        """The file."""
        return str(Path(self.dirpath) / f"{self.filename}.ckpt")

    def on_exception(self, trainer: Run, module: Any, error: BaseException) -> None:
        """Write."""
        trainer.save_checkpoint(self.ckpt_path)
