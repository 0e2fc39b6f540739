"""``predict`` for image models: a table of predictions, JSON, and annotated copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...models.pipelines.task_model import TaskModel
from ...models.postprocess.run_lengths import run_lengths
from ...runtime.base.units import counted
from ..cli import option_values
from ..console.output import current, notes_json
from ..console.status_line import busy
from ..run.counter import Counter
from ..run.readable_files import over_rows
from .picture_inputs import annotated_paths, assumed_preparations, pictures_of, read_preparation, write_annotated

DRAWN = ("mask", "depth")
"""Results that are arrays: they are drawn, not printed."""
UNPRINTED = (*DRAWN, "polygon", "point")
"""Results that the table does not have."""
PROSE = ("generated_text", "answer")
"""Results of any length, which the table has whole."""


def predict_pictures(
    model: TaskModel, path: str, given: Sequence[str], options: dict[str, Any], values: Mapping[str, Any]
) -> int:
    """Show what the model finds in pictures, and write annotated copies where ``output`` names a folder. The exit code:
    not 0 if pictures are damaged.

    Args:
        path: of the model.
        given: files, folders and patterns.
        options: of the model's task.
        values: the options of the command.
    """
    out = current()
    pictures = pictures_of(given)
    folder, force = values["output"], values["force"]
    targets = [] if folder is None else annotated_paths(folder, pictures, force=force)
    if "classes" in options:
        options["classes"] = [name.strip() for name in options["classes"].split(",")]
    if values["preprocessor"] is not None:
        options["preparation"] = read_preparation(values["preprocessor"])
    progress = Counter(option_values.progress(dict(values)), "predicting", "pictures")
    with assumed_preparations() as notes:
        readable = over_rows(model, "predict", pictures, options.get("batch", 1), options, progress=progress)
    busy().stop()
    out.warn(notes)
    results: Sequence[Sequence[Mapping[str, Any]]] = readable.results
    kept = [pictures[row] for row in readable.rows]
    targets = [targets[row] for row in readable.rows] if targets else []
    for target, picture, found in zip(targets, kept, results, strict=len(targets) > 0):
        write_annotated(target, picture, found, force=force)
    if kept:
        _show(kept, results)
    if targets:
        out.say(f"✓ {folder}  {counted(len(targets), 'annotated picture')}")
    shown = [
        {"input": picture, "found": [dict(plain_result(each)) for each in found]}
        for picture, found in zip(kept, results, strict=True)
    ]
    outputs = {"outputs": [{"path": target} for target in targets]} if targets else {}
    facts = {"inputs": [path], "task": model.task, "results": shown, **outputs, "warnings": notes_json(notes)}
    out.emit({**facts, **readable.errors_json(pictures)}, ok=not readable.errors)
    return readable.exit_code


def plain_result(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Predictions as JSON values: masks as run lengths, depth as its size."""
    for name, value in result.items():
        if name == "mask":
            yield "segmentation", (run_lengths(value) if isinstance(value, np.ndarray) else value).to_coco()
        elif name == "depth":
            yield "size", list(np.shape(value))
        else:
            yield name, value


def _show(pictures: Sequence[str], results: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    rows = [
        {"picture": picture, **dict(_cells(result))}
        for picture, found in zip(pictures, results, strict=True)
        for result in found
    ]
    if not rows:
        current().say("nothing found")
        return
    columns = [name for name in rows[0] if name != "picture" or len(pictures) > 1]
    texts = {name for found in results for result in found for name, value in result.items() if isinstance(value, str)}
    numeric = [index for index, name in enumerate(columns) if name not in {"picture", *texts}]
    prose = [index for index, name in enumerate(columns) if name in PROSE]
    current().table(columns, [[row[name] for name in columns] for row in rows], right=numeric, prose=prose)


def _cells(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        if name == "box":
            yield from ((edge, f"{length:.0f}") for edge, length in value.items())
        elif name == "keypoints":
            yield "key points", str(len(value))
        elif name not in UNPRINTED:
            yield name, f"{value:.4f}" if isinstance(value, float) else str(value)
