"""CSVLogger: a table of metrics, one row for each step that something was logged at. The file is that of Lightning."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping

from .logger import FolderLogger

FILE = "metrics.csv"


class CSVLogger(FolderLogger):
    """Writes ``metrics.csv``: columns are metrics in order of appearance, empty where a row lacks one.

    Args:
        save_dir, name, version: the folder; see `FolderLogger`.
        flush_logs_every_n_steps: rows after which the file is written.
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        super().__init__(save_dir, name, version)
        self._every = flush_logs_every_n_steps
        self._columns: list[str] = []
        self._rows: list[dict[str, float]] = []
        self._written = 0

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        row = {**metrics, "step": len(self._rows) if step is None else step}
        self._columns += sorted(set(row) - set(self._columns))
        self._rows.append(row)
        if len(self._rows) - self._written >= self._every:
            self.save()

    def save(self) -> None:
        """Write the rows that are not in the file yet; all of them where there are new columns."""
        if self._written == len(self._rows):
            return
        path = self.folder() / FILE
        first = self._written
        if first:
            with open(path, newline="", encoding="utf-8") as file:
                first = first if next(csv.reader(file)) == self._columns else 0
        with open(path, "a" if first else "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            if not first:
                writer.writeheader()
            writer.writerows(self._rows[first:])
        self._written = len(self._rows)
