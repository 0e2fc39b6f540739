"""``predict`` for audio models: a table of predictions with their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...models.pipelines.task_model import TaskModel
from ..cli import option_values
from ..console.output import current
from ..console.status_line import busy
from ..run.counter import Counter
from ..run.readable_files import over_rows
from .sound_inputs import sound_at, sounds_of

DECIMALS = {"start": 2, "end": 2, "time": 2, "hertz": 2, "confidence": 3}
"""Digits of results in the table; others have four."""


def predict_sounds(
    model: TaskModel, path: str, given: Sequence[str], options: dict[str, Any], values: Mapping[str, Any]
) -> int:
    """Show what the model finds in sounds; arguments as of `input_kind.Predict`. The exit code is not 0 if sounds are
    damaged."""
    out, sounds = current(), sounds_of(given)
    progress = Counter(option_values.progress(dict(values)), "predicting", "sounds")
    readable = over_rows(model, "predict", sounds, 1, options, sound_at, progress)
    busy().stop()
    results: Sequence[Sequence[Mapping[str, Any]]] = readable.results
    kept = [sounds[row] for row in readable.rows]
    if kept:
        _show(kept, results)
    shown = [{"input": sound, "found": found} for sound, found in zip(kept, results, strict=True)]
    facts = {"inputs": [path], "task": model.task, "results": shown, "warnings": []}
    out.emit({**facts, **readable.errors_json(sounds)}, ok=not readable.errors)
    return readable.exit_code


def _show(sounds: Sequence[str], results: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    rows = [{"sound": sound, **each} for sound, found in zip(sounds, results, strict=True) for each in found]
    if not rows:
        current().say("nothing found")
        return
    columns = [name for name in rows[0] if name != "sound" or len(sounds) > 1]
    numeric = [index for index, name in enumerate(columns) if isinstance(rows[0][name], float)]
    current().table(columns, [[_cell(name, row[name]) for name in columns] for row in rows], right=numeric)


def _cell(name: str, value: Any) -> str:
    return f"{value:.{DECIMALS.get(name, 4)}f}" if isinstance(value, float) else str(value)
