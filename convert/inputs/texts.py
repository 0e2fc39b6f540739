"""Models that take texts: results are a table with the predictions for each text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...models.pipelines.task_model import TaskModel
from ..cli import option_values
from ..console.output import current, notes_json
from ..console.status_line import busy
from ..run.counter import Counter
from ..run.text_lines import cut_texts
from .input_kind import InputKind


def predict_texts(
    model: TaskModel, path: str, given: Sequence[str], options: dict[str, Any], values: Mapping[str, Any]
) -> int:
    """Show what the model finds in texts; arguments as of `input_kind.Predict`."""
    with cut_texts() as notes:
        progress = Counter(option_values.progress(dict(values)), "predicting")
        results = model.predict(list(given), progress=progress, **options)
    busy().stop()
    out = current()
    out.warn(notes)
    _show(given, results)
    pairs = [{"input": text, "found": rows} for text, rows in zip(given, results, strict=True)]
    out.emit({"inputs": [path], "task": model.task, "results": pairs, "warnings": notes_json(notes)})
    return 0


def _show(given: Sequence[str], results: Sequence[Any]) -> None:
    """One table of all results."""
    rows = [row for text, each in zip(given, results, strict=True) for row in _rows(text, each)]
    if not rows:
        current().say("nothing found")
        return
    shown = [name for name in max(rows, key=len) if name != "input" or len(given) > 1]
    table = [[_shown(row.get(name, "")) for name in shown] for row in rows]
    current().table(
        shown, table, right=[index for index, name in enumerate(shown) if not isinstance(max(rows, key=len)[name], str)]
    )


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _rows(text: str, found: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Results of an input with the input, and the number of the mask where a text has several."""
    for number, each in enumerate(found, 1):
        if isinstance(each, dict):
            yield {"input": text, **each}
        else:
            yield from ({"input": text, "mask": number, **row} for row in each)


KIND = InputKind("text", "texts", predict_texts, embed_options=("batch", "normalize", "prompt_name", "pooling", "dim"))
