"""Types chosen by measured error against llama.cpp's mixes, at the size of each mix: how much of the weights' signal is lost.

    python benchmarks/budget.py MODEL [--arch bert] [--imatrix FILE] [--mixes Q4_K_M,Q5_K_S] [--folder /dev/shm]

MODEL holds plain weights. With --arch its tensors get the names that GGUF has for that architecture, by which the mixes go. For every mix the
model is quantized to it, then with `--target-size` to the size of that file. The error is measured on the written files, over all values: of
each tensor the squared error by the squared values (both weighed by the importance matrix where there is one), averaged over all weights that
either of them quantizes. Files that are larger than the mix's would be an error.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import candle_convert as cc
import gguf
import numpy as np
from candle_convert.convert.quantizing import imatrix
from candle_convert.convert.quantizing.filetypes import FILE_TYPES
from candle_convert.convert.quantizing.model import weight_of
from candle_convert.ops.quants import dequantized

PLAIN = ("f32", "f16", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--arch", help="gguf's name of the architecture, for models with other names")
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--mixes", help="comma-separated; all that can be made by default")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    arguments = parser.parse_args()
    folder = arguments.folder / "candle-convert-budget"
    folder.mkdir(exist_ok=True)
    try:
        source = renamed(arguments.model, arguments.arch, folder / "source.gguf") if arguments.arch else arguments.model
        print("| mix | bits a weight | bytes | of it used | mix: error % | auto: error % | ratio | auto: RMSE by mix's | seconds |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in mixes(arguments.mixes, arguments.imatrix is not None):
            print(compare(source, name, arguments.imatrix, folder), flush=True)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def mixes(text: str | None, importance: bool) -> list[str]:
    if text is not None:
        return text.split(",")
    needing = ("iq1", "iq2", "iq3_xxs", "iq3_xs", "q2_k_s", "tq", "q1", "q2_0", "mxfp4")
    return [each.name for each in FILE_TYPES if each.listed and each.name not in PLAIN and (importance or not each.name.startswith(needing))]


def renamed(path: Path, arch: str, target: Path) -> Path:
    """The model in GGUF with that architecture's names."""
    graph = cc.open(path)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    layers = 1 + max((int(part) for name in graph.weights for part in name.split(".") if part.isdigit()), default=0)
    names = gguf.get_tensor_name_map(kind, layers)
    graph.weights = {names.get_name(name, try_suffixes=(".weight", ".bias")) or name: tensor for name, tensor in graph.weights.items()}
    graph.metadata = {"general.architecture": arch, f"{arch}.block_count": np.uint32(layers)}
    cc.save_file(graph.weights, target, metadata=graph.metadata)
    return target


def compare(source: Path, name: str, importance: Path | None, folder: Path) -> str:
    """One row of the table."""
    theirs, ours = folder / "mix.gguf", folder / "auto.gguf"
    mix = cc.quantize(source, theirs, name, imatrix=importance, force=True)
    began = time.perf_counter()
    cc.quantize(source, ours, cc.Recipe(target_size=theirs.stat().st_size, imatrix=importance), force=True)
    seconds = time.perf_counter() - began
    assert ours.stat().st_size <= theirs.stat().st_size
    used = ours.stat().st_size / theirs.stat().st_size
    (mix_loss, mix_rmse), (loss, rmse) = (errors(source, path, (theirs, ours), importance) for path in (theirs, ours))
    size = f"{theirs.stat().st_size:,} | {used:.3%}"
    ratios = f"{loss / mix_loss:.2f} | {rmse / mix_rmse:.2f}"
    return f"| {name} | {mix.bits_per_weight:.2f} | {size} | {mix_loss:.4%} | {loss:.4%} | {ratios} | {seconds:.1f} |"


def errors(source: Path, made: Path, both: tuple[Path, Path], importance: Path | None) -> tuple[float, float]:
    """Mean relative squared error, and root of the mean squared error, of the weights that one of `both` changes."""
    before, after = cc.open(source).weights, cc.open(made).weights
    changed = [name for name in before if any(cc.open(path).weights[name].dtype != before[name].dtype for path in both)]
    matrix = None if importance is None else imatrix.read(str(importance))
    relative = squares = count = 0.0
    for name in changed:
        values, rounded = (dequantized(side[name]).numpy().astype(np.float64) for side in (before, after))
        weights = None if matrix is None else matrix.of(weight_of(name, before[name]), name)
        scale = 1.0 if weights is None else weights.reshape(*values.shape[:-2], 1, values.shape[-1])
        signal = float((values * values * scale).sum())
        error = float((np.square(values - rounded) * scale).sum())
        relative += values.size * error / signal if signal else 0.0
        squares += float(np.square(values - rounded).sum())
        count += values.size
    return relative / count, math.sqrt(squares / count)


if __name__ == "__main__":
    main()
