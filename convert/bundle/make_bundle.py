"""Making of bundles: the model, the modules that its requests import, and the machine code of its kernels."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...models.pipelines.task_model import TEXTS
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.jit import isa, kernel_pack, source_digest
from ...runtime.plugin import module_index
from ..kernels.pack_kernels import cached, compiled, variants
from . import MANIFEST, bundled_program, trace

ROOT = Path(sys.modules[trace.PACKAGE].__path__[0])
UNUSED = frozenset(("numba", "llvmlite", "onnx", "click", "rich", "google", "gguf", "safetensors"))
"""Packages that a bundle runs without."""
OUTSIDE = frozenset(("tests", "benchmarks", "docs", "examples"))
"""Folders of a clone that are not part of the package."""
DATA = ("*.txt", "*.gz")
"""Files that modules read."""
DISTRIBUTIONS = {"PIL": "pillow", "re2": "google-re2"}
"""Import name -> distribution name, where they differ."""
MAIN = '''"""Runs the model of this folder: JSON lines on standard input, or --http PORT."""

import gc
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

gc.disable()
from candle_convert.convert.bundle.bundled_program import main  # noqa: E402

gc.enable()
sys.exit(main(FOLDER, sys.argv[1:]))
'''
NAMES = '''"""Names that modules of kernels import from LLVM's package. This folder compiles nothing."""


class _Name:
    def __getattr__(self, name):
        return self

    def __call__(self, *arguments, **options):
        return self

    __mul__ = __rmul__ = __add__ = __radd__ = __call__


class _Module(_Name):
    Type = object


ir = _Module()
'''


@dataclass(frozen=True)
class Bundle:
    """A bundle that was made.

    Attributes:
        files: number of modules.
        code: bytes of modules and machine code; model: those of the model.
        kernels: their number, over all variants.
        packages: what has to be installed.
        operations: what it answers.
        variants: names of the processors' variants.
    """

    path: str
    files: int
    code: int
    model: int
    kernels: int
    packages: tuple[str, ...]
    operations: tuple[str, ...]
    variants: tuple[str, ...]


def make_bundle(
    model: str, output: Path, levels: Sequence[str] | None = None, requests: Sequence[Any] | None = None
) -> Bundle:
    """Write a bundle of a model into a new folder.

    Args:
        levels: ISA levels whose processors it has machine code for; None for processors such as this one.
        requests: samples of what it will be asked; None for one of each operation of the model.

    Raises UsageError for a level that this machine lacks, and UnsupportedError where a sample has no answer, or where
    the bundle answers otherwise than this package.
    """
    chosen = [bundled_program.best(isa.VARIANTS)] if levels is None else variants(levels)
    if requests is not None and not requests:
        raise UsageError("E-BUNDLE-SAMPLE", None, "there is no request")
    application = bundled_program.Application(model)
    samples = (
        [_sample(application, operation) for operation in application.operations]
        if requests is None
        else list(requests)
    )
    samples = [{"seed": 0, **sample} if _draws(sample) else sample for sample in samples]
    operations = application.operations
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch, "requests.json")
        asked.write_text(json.dumps(samples))
        program = f"from candle_convert.convert.bundle.trace import main; main({[model, str(asked), '/dev/null']!r})"
        own = bundled_program.best(chosen)
        facts = _traced(model, asked, Path(scratch), own)
        kernels = [*cached(Path(scratch), own)]
        kernels += [kernel for each in chosen if each is not own for kernel in compiled(each, program)]
    files = _closure(map(Path, facts["files"]))
    _copy_modules(files, map(Path, facts["imported"]), output)
    kernel_pack.write(output / trace.PACKAGE / kernel_pack.FILE.relative_to(ROOT), kernels)
    place = _copy_model(model, output / "model")
    code = _nbytes(output) - _nbytes(output / "model")
    packages = tuple(sorted({DISTRIBUTIONS.get(name, name) for name in facts["packages"] if _needed(name)}))
    manifest = {
        "model": place,
        "variants": [each.name for each in chosen],
        "operations": operations,
        "example": samples[0],
    }
    (output / MANIFEST).write_text(json.dumps(manifest, indent=2))
    (output / "requirements.txt").write_text("".join(f"{name}\n" for name in packages))
    _check(output, samples, facts["answers"])
    return Bundle(
        path=str(output),
        files=len(files),
        code=code,
        model=_nbytes(output / "model"),
        kernels=len(kernels),
        packages=packages,
        operations=operations,
        variants=tuple(each.name for each in chosen),
    )


def _draws(request: Any) -> bool:
    """Whether the answer depends on random numbers."""
    return isinstance(request, dict) and request.get("op") == "generate"


def _sample(held: bundled_program.Application, operation: str) -> dict[str, Any]:
    """A request of an operation."""
    if operation == "run":
        from ..run.feeds import feeds

        fed = feeds(held.session.graph, ())[0]
        return {"op": "run", "inputs": {name: value.tolist() for name, value in fed.items()}}
    if operation == "generate":
        return {"op": "generate", "prompt": "Hello", "max_tokens": 8, "seed": 0}
    if operation == "transcribe":
        raise UsageError("E-BUNDLE-SAMPLE", None, "the model takes sounds", hint="Name one in --request FILE.jsonl")
    if held.model.takes != TEXTS and "_and_" not in held.model.takes:
        why = f"the model takes {held.model.takes}"
        raise UsageError("E-BUNDLE-SAMPLE", None, why, hint="Name some in --request FILE.jsonl")
    return {"op": operation, "inputs": ["Hello"]}


def _traced(model: str, requests: Path, scratch: Path, variant: isa.Variant) -> dict[str, Any]:
    """The facts of a process that answers with kernels that are compiled. UnsupportedError where a request has no
    answer."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch), isa.VARIANT_VARIABLE: variant.name}
    facts = scratch / "facts.json"
    for _ in range(2):
        words = [sys.executable, "-m", trace.__name__, model, str(requests), str(facts)]
        subprocess.run(words, env=environment, check=True)
        found: dict[str, Any] = json.loads(facts.read_text())
        failed = next((answer["error"] for answer in found["answers"] if "error" in answer), None)
        if failed is not None:
            raise UnsupportedError("E-BUNDLE-SAMPLE", model, f"a sample has no answer: {failed['message']}")
    return found


def _needed(name: str) -> bool:
    """Whether a package that was imported has to be installed for the bundle."""
    return name not in UNUSED and not name.startswith("_") and name.isidentifier() and name != trace.PACKAGE


def _closure(files: Iterable[Path]) -> list[Path]:
    """Files of this package, and those that they import, at any time; digests of kernels cover the same ones."""
    found = {str(path) for path in files if path.is_relative_to(ROOT)}
    found |= set(_packages(ROOT))
    pending = sorted(found)
    while pending:
        new = source_digest.imported(pending.pop()) - found
        found |= new
        pending += new
    return sorted(map(Path, found))


def _packages(folder: Path) -> Iterator[str]:
    """The ``__init__.py`` of a package and of those below it, in which modules are looked for."""
    if (folder / "__init__.py").is_file():
        yield str(folder / "__init__.py")
        for inner in folder.iterdir():
            if inner.is_dir() and inner.name not in OUTSIDE:
                yield from _packages(inner)


def _copy_modules(files: Sequence[Path], imported: Iterable[Path], output: Path) -> None:
    """The modules, with bytecode of those that are imported each time, the program, and the indexes of declarations
    and digests."""
    package = output / trace.PACKAGE
    for path in files:
        copy = package / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for folder in {path.parent for path in files}:
        for data in (path for suffix in DATA for path in folder.glob(suffix)):
            shutil.copyfile(data, package / data.relative_to(ROOT))
    names = output / "llvmlite"
    names.mkdir()
    (names / "__init__.py").write_text(NAMES)
    (names / "_version.py").write_text("")
    (output / "__main__.py").write_text(MAIN)
    for path in imported:
        py_compile.compile(
            str(package / path.relative_to(ROOT)),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    module_index.write_packed(package)
    source_digest.write_packed(map(str, files), package)


def _copy_model(model: str, folder: Path) -> str:
    """The model's files in a folder; returns its path in the bundle."""
    source = Path(model)
    if source.is_dir():
        left_out = shutil.ignore_patterns(".*", "*.partial")
        shutil.copytree(source, folder, ignore=left_out)
        return folder.name
    folder.mkdir()
    shutil.copyfile(source, folder / source.name)
    return f"{folder.name}/{source.name}"


def _nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _check(output: Path, samples: Sequence[Any], answers: Sequence[Any]) -> None:
    """The bundle answers the samples as this package does, without the packages that compile."""
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in sorted(UNUSED - {"llvmlite"}))
    program = f"import runpy, sys; {blocked}; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", program, str(output)]
    lines = "".join(f"{json.dumps(sample)}\n" for sample in samples)
    environment = {**os.environ, "HOME": os.devnull, "XDG_CACHE_HOME": ""}
    done = subprocess.run(words, input=lines, env=environment, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.split("\n") if line]
    if found != list(answers):
        wrong = next((each["error"]["message"] for each in found if "error" in each), done.stderr.strip()[-300:])
        why = f"the bundle does not answer a sample as this package does: {wrong}".removesuffix(": ")
        hint = "Name the model's folder if it has several files"
        raise UnsupportedError("E-BUNDLE-CHECK", str(output), why, hint=hint)
