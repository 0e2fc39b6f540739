"""Pages of the documentation site that are made of other sources: the documents of the root, the registries, the errors
that modules raise, and the public names. mkdocs calls the functions at the end."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import candle_convert as cc
from candle_convert.convert.finetune.session import ANSWERS, CLASSES, PAIRS
from candle_convert.convert.inspect.architectures import families
from candle_convert.convert.trainable.class_names import class_name
from candle_convert.runtime.base import errors
from candle_convert.runtime.contract.architecture import Architecture
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY_FILES = {"index.md": "README.md", "benchmarks.md": "BENCHMARKS.md", "contributing.md": "CONTRIBUTING.md",
                    "changelog.md": "CHANGELOG.md"}  # fmt: skip
"""Documents of the root, by the page that shows each."""
LINK = re.compile(r"\]\(((?:\.\./)*[\w./-]+\.md|(?:\.\./)*LICENSE)(#[^)]*)?\)")
API = {
    "Files": ("open", "load_file", "save_file", "load", "save", "StoredTensor", "Graph", "Options"),
    "Conversion": ("convert", "plan", "quantize", "cluster", "Recipe", "encode", "decode"),
    "Checks": ("verify", "diff", "hash", "scan", "limits"),
    "Networks": ("InferenceSession", "register_op", "convert.api.onnx.read", "convert.api.onnx.write",
                 "convert.api.onnx.export"),
    "Models": ("convert.load.load_model.load",),
    "Training": ("Trainer", "LightningModule", "LightningDataModule", "Model", "Sequential", "Callback"),
    "Progress": ("on_compile", "CompileProgress", "RichProgress"),
    "Errors": ("Error", "UsageError", "FormatError", "UnsupportedError", "UnsafeFileError", "LimitError",
               "FileAccessError"),
}  # fmt: skip
"""Names that the page of the Python API documents, by heading."""
SKIPPED = {"tests", "benchmarks", "examples", "docs", "build", "site"}
ERRORS = {
    name: each.exit_code for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, cc.Error)
}


def _moved(text: str, page: str, source: str) -> str:
    """The text of a document with its links leading to pages of the site; `page` shows what stands in `source`."""
    pages = {document: page for page, document in REPOSITORY_FILES.items()}

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        shown = pages.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(shown, posixpath.dirname(page) or '.')}{found[2] or ''})"

    return LINK.sub(link, text)


def _model_row(architecture: Architecture) -> str:
    """What an architecture can do, by its registered names, tasks and graphs."""
    trained = {class_name(name).task for name in (*CLASSES.values(), ANSWERS, PAIRS)}
    tasks = [task.name for task in architecture.tasks]
    in_onnx = any(task.graphs for task in architecture.tasks)
    types = [*(["GGUF blocks"] if architecture.gguf else []), *(["ONNX int8, int4"] if in_onnx else [])]
    cells = (
        architecture.title,
        " ".join(f"`{name}`" for name in architecture.model_types),
        ", ".join(tasks),
        " ".join(f"`{name}`" for name in architecture.gguf),
        "yes" if in_onnx else "",
        "; ".join(types),
        ", ".join(task for task in tasks if task in trained),
    )
    return f"| {' | '.join(cells)} |"


def models_page() -> str:
    """Every architecture with its names in each kind of file and what it can do."""
    found = sorted((each for _, each in families()), key=lambda each: each.title.lower())
    return "\n".join(
        [
            "# Models",
            "",
            "```sh",
            "candle-convert models show qwen3",
            "```",
            "",
            "shows the hyper-parameters and weights of an architecture, with their names in each format. All of these "
            "run from safetensors, PyTorch files and ONNX exports, and from GGUF where a name is given. `finetune` "
            "learns the tasks of the last column.",
            "",
            "| model | model_type | run | GGUF | ONNX | quantize | finetune |",
            "|---|---|---|---|---|---|---|",
            *map(_model_row, found),
        ]
    )


def _raised() -> Iterator[tuple[str, int, str, str]]:
    """(code, exit code, message, hint) of each error that a module of the package makes with a code in its text."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] in SKIPPED or path.relative_to(ROOT).parts[0].startswith("."):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ERRORS:
                continue
            if len(node.args) > 2 and isinstance(node.args[0], ast.Constant):
                hint = next((_text(each.value) for each in node.keywords if each.arg == "hint"), "")
                yield str(node.args[0].value), ERRORS[node.func.id], _text(node.args[2]), hint


def _text(node: ast.expr) -> str:
    """A message as its source has it: values that are put in stand as an ellipsis."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return ""


def errors_page() -> str:
    """Every code with its exit code, what it says and what helps."""
    found: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for code, exit_code, message, hint in _raised():
        if message.strip("… "):
            found[code][message, hint] = exit_code
    lines = [
        "# Error codes",
        "",
        "Errors have a stable code, one line of text and, where something helps, a hint; `--json` has them as fields. "
        "The exit code of a command is that of its error: [Commands](COMMANDS.md#exit-codes). An ellipsis stands for "
        "names and numbers of the file at fault.",
    ]
    for code in sorted(found):
        exits = sorted(set(found[code].values()))
        lines += ["", f"## {code}", "", f"Exit code {' or '.join(map(str, exits))}.", ""]
        lines += [f"- {_escaped(why)}{f'. *{_escaped(hint)}*' if hint else ''}" for why, hint in found[code]]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))


def api_page() -> str:
    """Public names with their docstrings."""
    lines = [
        "# Python API",
        "",
        "`import candle_convert as cc`. Functions of tensors, layers, losses and optimizers have the names, arguments "
        "and results of PyTorch: `cc.tensor`, `cc.matmul`, `cc.nn.Linear`, `cc.optim.AdamW`.",
    ]
    for heading, names in API.items():
        lines += ["", f"## {heading}", ""]
        lines += [f"::: candle_convert.{name}\n" for name in names]
    return "\n".join(lines)


def on_config(config: Any) -> Any:
    """Lets the documentation of names find the package, whatever the folder of the clone is called."""
    folder = tempfile.mkdtemp()
    os.symlink(ROOT, os.path.join(folder, "candle_convert"))
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [folder]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not files of the folder."""
    made = {
        page: _moved((ROOT / name).read_text(encoding="utf-8"), page, name) for page, name in REPOSITORY_FILES.items()
    }
    made |= {"models.md": models_page(), "errors.md": errors_page(), "api.md": api_page()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of files of the folder to documents of the root lead to their pages."""
    made = page.file.generated_by
    return markdown if made else _moved(markdown, page.file.src_uri, f"docs/{page.file.src_uri}")
