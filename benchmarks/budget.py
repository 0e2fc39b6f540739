"""Quantization error of types chosen by measured error, against llama.cpp's mixes of the same file size.

    python benchmarks/budget.py MODEL [--arch bert] [--imatrix FILE] [--mixes Q4_K_M,Q5_K_S] [--folder /dev/shm]

MODEL has unquantized weights. --arch renames its tensors to the GGUF names of that architecture, which the mixes
select by. The model is quantized to each mix, then with `--target-size` to the size of that file; a larger file fails
an assertion. The error of a tensor is its squared error over its squared values (both weighted by the importance
matrix, if given), measured on all values of the written files; a row has the mean over all weights that either file
quantizes.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import candle_convert as cc
import gguf
import numpy as np
from candle_convert.convert.quantize.recipe import imatrix
from candle_convert.convert.translate.gguf_file_type import FILE_TYPES
from candle_convert.convert.translate.model_facts import weight_of

PLAIN = ("f32", "f16", "bf16")
NEED_IMPORTANCE = ("iq1", "iq2", "iq3_xxs", "iq3_xs", "q2_k_s", "tq", "q1", "q2_0", "mxfp4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="model with unquantized weights")
    parser.add_argument("--arch", help="GGUF architecture whose tensor names the mixes expect")
    parser.add_argument("--imatrix", type=Path, help="importance matrix for both sides")
    parser.add_argument("--mixes", help="comma-separated file types; default: all that are possible")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="folder of temporary files")
    arguments = parser.parse_args()
    folder = arguments.folder / "candle-convert-budget"
    folder.mkdir(exist_ok=True)
    try:
        source = renamed(arguments.model, arguments.arch, folder / "source.gguf") if arguments.arch else arguments.model
        print("| mix | bits/weight | mix bytes | used | mix error | ours | ratio | RMSE ratio | seconds |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in mixes(arguments.mixes, arguments.imatrix is not None):
            print(compare(source, name, arguments.imatrix, folder), flush=True)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def mixes(text: str | None, importance: bool) -> list[str]:
    """Names of the file types to compare."""
    if text is not None:
        return text.split(",")
    listed = [each.name for each in FILE_TYPES if each.listed and each.name not in PLAIN]
    return listed if importance else [name for name in listed if not name.startswith(NEED_IMPORTANCE)]


def renamed(path: Path, arch: str, target: Path) -> Path:
    """Write the model to GGUF under the tensor names of an architecture."""
    graph = cc.open(path)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    layers = 1 + max((int(part) for name in graph.weights for part in name.split(".") if part.isdigit()), default=0)
    names = gguf.get_tensor_name_map(kind, layers)
    graph.weights = {
        names.get_name(name, try_suffixes=(".weight", ".bias")) or name: tensor
        for name, tensor in graph.weights.items()
    }
    graph.metadata = {"general.architecture": arch, f"{arch}.block_count": np.uint32(layers)}
    cc.save_file(graph.weights, target, metadata=graph.metadata)
    return target


def compare(source: Path, name: str, importance: Path | None, folder: Path) -> str:
    """Row of the table for one mix."""
    theirs, ours = folder / "mix.gguf", folder / "auto.gguf"
    mix = cc.quantize(source, theirs, name, imatrix=importance, force=True)
    start = time.perf_counter()
    cc.quantize(source, ours, cc.Recipe(target_size=theirs.stat().st_size, imatrix=importance), force=True)
    seconds = time.perf_counter() - start
    assert ours.stat().st_size <= theirs.stat().st_size
    used = ours.stat().st_size / theirs.stat().st_size
    (mix_loss, mix_rmse), (loss, rmse) = (errors(source, path, (theirs, ours), importance) for path in (theirs, ours))
    size = f"{theirs.stat().st_size:,} | {used:.3%}"
    ratios = f"{loss / mix_loss:.2f} | {rmse / mix_rmse:.2f}"
    return f"| {name} | {mix.bits_per_weight:.2f} | {size} | {mix_loss:.4%} | {loss:.4%} | {ratios} | {seconds:.1f} |"


def errors(source: Path, made: Path, both: tuple[Path, Path], importance: Path | None) -> tuple[float, float]:
    """Mean relative squared error and RMSE of `made`, over the weights that either file in `both` quantizes."""
    before, after = cc.open(source).weights, cc.open(made).weights
    changed = [name for name in before if any(cc.open(path).weights[name].dtype != before[name].dtype for path in both)]
    matrix = None if importance is None else imatrix.read(str(importance))
    relative = squares = count = 0.0
    for name in changed:
        values, rounded = (side[name].dequantize().numpy().astype(np.float64) for side in (before, after))
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
