"""Making of pages: the model as ONNX files, the scripts of its kind, and copies of the npm packages that run it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.tokenizer.readers.locate import settings
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ..open.graph_files import GRAPH
from ..write.graph_variants import VARIANTS
from ..write.model_folder import CONFIG
from . import ASSETS, MANIFEST
from .kind import KINDS, Kind
from .npm_packages import TRANSFORMERS, TRANSFORMERS_JS, installed

if TYPE_CHECKING:
    from ..console.progress import Progress

SHARED = ("index.html", "page.css", "page.js", "worker.js", "runtime.js", "generation.js", "picture.js", "prepare.js")
"""Files of every page."""
MODEL, SCRIPTS, RUNTIME = "model", "kinds", "runtime"
"""Folders of a page."""


@dataclass(frozen=True)
class Page:
    """A page that was made.

    Attributes:
        kind: its name.
        model, code: bytes of the model's files, and of everything else.
        packages: name and version of the npm packages that it has copies of.
        notes: warnings of the export.
    """

    kind: str
    model: int
    code: int
    packages: tuple[str, ...]
    notes: tuple[Any, ...]


def make_page(
    model: str,
    output: Path,
    *,
    dtype: str = "f32",
    title: str | None = None,
    runtime: Path | None = None,
    progress: Progress | None = None,
) -> Page:
    """Write a page that runs a model into a new folder.

    Args:
        dtype: of the export, as ``--dtypes`` of convert.
        title: heading of the page; None for the name of the model's file or folder.
        runtime: where npm packages are installed; None as of `installed`.

    Raises UnsupportedError for models that no page runs, and without the npm packages.
    """
    from ..load.load_model import load
    from ..write import pipeline
    from ..write.conversion_options import Options
    from ..write.plan import plan

    loaded = load(model)
    name, kind = kind_of(getattr(loaded, "task", ""), model)
    packages = installed(kind.runtime, runtime)
    planned = plan([model], output / MODEL, Options(to="onnx", dtypes=(dtype,)))
    made = {file.name for file in planned.files}
    missing = next((each for each in kind.needs if each not in made), None)
    if missing is not None:
        hint = "Name the model's folder, which has its tokenizer and configuration"
        raise UnsupportedError("E-PAGE-FILES", model, f"the export has no {missing}, which pages read", hint=hint)
    model_type = settings(planned.graph, CONFIG).get("model_type")
    if kind.runtime is TRANSFORMERS_JS and not packages.names(str(model_type)):
        why = f"{packages.packages[0]} runs no models of type {model_type}"
        raise UnsupportedError("E-PAGE-MODEL", model, why, hint=f"Install a newer {TRANSFORMERS}, if it runs them")
    facts = kind.facts(loaded)
    pipeline.execute(planned, progress)
    for each in SHARED:
        shutil.copyfile(ASSETS / each, output / each)
    (output / SCRIPTS).mkdir()
    shutil.copyfile(ASSETS / SCRIPTS / f"{name}.js", output / SCRIPTS / f"{name}.js")
    packages.copy(output / RUNTIME)
    sizes = {path.relative_to(output).as_posix(): path.stat().st_size for path in _files(output)}
    graphs = {name: size for name, size in sizes.items() if GRAPH in name}
    said = {
        "kind": name,
        "title": Path(os.path.abspath(model)).name if title is None else title,
        "heading": kind.title,
        "dtype": VARIANTS[dtype].name,
        "suffix": VARIANTS[dtype].suffix,
        "runtime": list(packages.files),
        "files": graphs,
        **facts,
    }
    (output / MANIFEST).write_text(json.dumps(said, indent=1, ensure_ascii=False), "utf-8")
    exported = sum(size for path, size in sizes.items() if path.startswith(f"{MODEL}/"))
    return Page(name, exported, sum(sizes.values()) - exported, packages.packages, tuple(planned.graph.notes))


def kind_of(task: str, model: str) -> tuple[str, Kind]:
    """The name and the kind of the page for a task. UnsupportedError for a task that no page is for."""
    kinds = {name: KINDS.load(name) for name in KINDS.names()}
    for name, kind in kinds.items():
        if task in kind.tasks:
            return name, kind
    known = sorted(task for kind in kinds.values() for task in kind.tasks)
    why = f"no page runs models for {task or 'an unknown task'}"
    raise UnsupportedError("E-PAGE-TASK", model, why, expected=" or ".join(known))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
