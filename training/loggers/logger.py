"""Logger: what a trainer tells metrics to, and folders of numbered versions."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.base.system_error import write_error


class Logger(ABC):
    """Base of loggers: a subclass writes metrics somewhere."""

    @property
    def log_dir(self) -> str | None:
        """The folder of this run; None if the logger has no files."""
        return None

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Note numbers by name, which belong to a step of the optimizer."""

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Note the settings of the run."""
        return

    def save(self) -> None:
        """Write the buffered metrics."""
        return

    def finalize(self, status: str) -> None:
        """Write the buffered metrics and close files. `status` is success or failed."""
        self.save()


class FolderLogger(Logger):
    """Base of loggers that write into ``save_dir/name/version_N``.

    Args:
        save_dir: folder of all runs.
        name: folder of an experiment; "" for none.
        version: number or name of the run; None for the number after the highest that exists.
    """

    def __init__(
        self, save_dir: str | os.PathLike[str], name: str | None = "lightning_logs", version: int | str | None = None
    ) -> None:
        self.save_dir = os.fspath(save_dir)
        self.name = name or ""
        self._version = version

    @property
    def root_dir(self) -> str:
        """Folder of the experiment."""
        return os.path.join(self.save_dir, self.name)

    @property
    def version(self) -> int | str:
        """Number or name of the run."""
        if self._version is None:
            root = Path(self.root_dir)
            names = [each.name for each in root.iterdir()] if root.is_dir() else []
            numbers = [int(found[1]) for name in names if (found := re.fullmatch(r"version_(\d{1,9})", name))]
            self._version = max(numbers, default=-1) + 1
        return self._version

    @property
    def log_dir(self) -> str:
        """Folder of the run."""
        version = self.version
        return os.path.join(self.root_dir, version if isinstance(version, str) else f"version_{version}")

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Write the settings of the run to ``hparams.yaml``, which JSON is a part of."""
        path = self.folder() / "hparams.yaml"
        path.write_text(json.dumps(dict(params), indent=2, default=repr) + "\n", encoding="utf-8")

    def folder(self) -> Path:
        """The folder of the run, made where it does not exist."""
        path = Path(self.log_dir)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(path, error) from error
        return path
