"""Clusters: overhead and speed-up of local workers, and a simulation of more of them.

    python benchmarks/cluster.py [--gb 4] [--texts 20000] [--model all-MiniLM-L6-v2] [--plot cluster.svg]

Quantizes a sharded bf16 checkpoint of random weights to Q4_K_M, and embeds texts, in one process, on ``local:1`` and on
``local:2``. Seconds include starting and ending the workers; "work" leaves that out. The outputs have to be the same
bytes. `--folder` keeps the checkpoint for a further run; `--only` runs one part. Then 4 to 64 workers of one thread are
simulated, which quantize 1 TB: each piece takes a time that a piece took here, the scheduler takes its measured time
for each piece, one after another, and reads and writes share a storage of ``--storage`` GB/s. Whichever of the three
takes longest decides.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.convert.cluster.conversion import COSTLY_BYTE
from candle_convert.convert.cluster.workers.cluster import Cluster
from candle_convert.convert.cluster.workers.work import Work
from candle_convert.convert.write.write import SPLIT
from candle_convert.runtime.base.dataclass import dataclass

ROWS, COLUMNS = 4096, 4096
WORKERS = (1, 2, 4, 8, 16, 32, 64)
TERABYTE = 10**12
PIECE = SPLIT // COSTLY_BYTE
"""Bytes of Q4_K that one piece writes."""
READ_PER_WRITTEN = 16 / 4.5
"""Bytes of bf16 that are read for a byte of Q4_K."""


@dataclass(frozen=True)
class Nothing(Work):
    """Pieces that take no time: what is left is the scheduler's."""

    def prepare(self, threads: int) -> None: ...

    def run(self, prepared: None, piece: int) -> int:
        return piece


def checkpoint(folder: Path, nbytes: int) -> Path:
    """Shards of random bf16 weights."""
    import ml_dtypes

    tensor = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32).astype(ml_dtypes.bfloat16)
    count = max(1, nbytes // tensor.nbytes)
    arrays = {f"blk.{number}.ffn_up.weight": np.roll(tensor, number, 1) for number in range(count)}
    cc.save_file(arrays, folder / "whole.safetensors")
    cc.convert(folder / "whole.safetensors", folder / "model", to="safetensors", shard_nbytes="1GB")
    (folder / "whole.safetensors").unlink()
    return folder / "model"


def quantized(folder: Path, model: Path) -> dict[str, dict[str, float]]:
    """Seconds to quantize in one process and on workers."""
    found, first = {}, None
    for where in (None, "local:1", "local:2"):
        out = folder / "out.gguf"
        begin = time.perf_counter()
        if where is None:
            report = cc.quantize(model, out, "Q4_K_M")
        else:
            with cc.cluster(where) as cluster:
                cluster.client.wait_for_workers(int(where[-1]))
                report = cc.quantize(model, out, "Q4_K_M", cluster=cluster)
        seconds = time.perf_counter() - begin
        data = out.read_bytes()
        first = first or data
        assert data == first, where
        found[where or "one process"] = {"seconds": seconds, "work": sum(report.seconds.values())}
        print(where or "one process", found[where or "one process"], file=sys.stderr, flush=True)
    return found


def embedded(model: str, count: int) -> dict[str, dict[str, float]]:
    """Seconds to embed texts in one process and on workers."""
    chosen = random.Random(0)
    words = Path(cc.__file__).with_name("README.md").read_text().split()
    texts = [" ".join(chosen.choices(words, k=chosen.randint(5, 40))) for _ in range(count)]
    loaded = cc.models.load(model)
    loaded.embed(texts[:64])
    found, first = {}, None
    for where in (None, "local:1", "local:2"):
        begin = time.perf_counter()
        if where is None:
            vectors = loaded.embed(texts)
            work = time.perf_counter() - begin
        else:
            with cc.cluster(where) as cluster:
                cluster.client.wait_for_workers(int(where[-1]))
                shared = cluster.load(model, "embed")
                shared.embed(texts[:64])
                started = time.perf_counter()
                vectors = shared.embed(texts)
                work = time.perf_counter() - started
        first = vectors if first is None else first
        np.testing.assert_array_equal(vectors, first)
        found[where or "one process"] = {"seconds": time.perf_counter() - begin, "work": work}
        print(where or "one process", found[where or "one process"], file=sys.stderr, flush=True)
    return found


def scheduler_seconds(cluster: Cluster, pieces: int = 500) -> float:
    """Seconds that the scheduler, the client and the network take for a piece."""
    list(cluster.results(Nothing(), range(20)))
    begin = time.perf_counter()
    list(cluster.results(Nothing(), range(pieces)))
    return (time.perf_counter() - begin) / pieces


def simulated(seconds: Sequence[float], overhead: float, storage: float) -> list[dict[str, float]]:
    """Hours for 1 TB of bf16, by workers.

    Args:
        seconds: that pieces took on one thread.
        overhead: of the scheduler, for each piece.
        storage: bytes a second that all workers share.
    """
    count = round(TERABYTE / READ_PER_WRITTEN / PIECE)
    moved = TERABYTE + TERABYTE / READ_PER_WRITTEN
    rows = []
    for workers in WORKERS:
        chosen = random.Random(workers)
        free = [0.0] * workers
        for number in range(count):
            begin = max(heapq.heappop(free), number * overhead)
            heapq.heappush(free, begin + chosen.choice(seconds))
        total = max(max(free), moved / storage)
        limits = {"workers": max(free), "storage": moved / storage, "scheduler": count * overhead}
        limit = max(limits, key=limits.__getitem__)
        rows.append({"workers": workers, "hours": total / 3600, "limit": limit})
    return rows


def plot(rows: Sequence[dict[str, float]], path: Path) -> None:
    """Speed-up by workers as SVG, with logarithmic axes, next to that of no limit."""
    side, margin = 400, 50

    def at(workers: float, speed: float) -> str:
        x, y = (np.log2(value) / np.log2(WORKERS[-1]) for value in (workers, speed))
        return f"{margin + x * side:.1f},{margin + side - y * side:.1f}"

    base = rows[0]["hours"]
    found = " ".join(at(row["workers"], max(1.0, base / row["hours"])) for row in rows)
    ideal = " ".join(at(count, count) for count in WORKERS)
    labels = "".join(
        f'<text x="{at(count, 1).split(",")[0]}" y="{margin + side + 20}">{count}</text>'
        f'<text x="10" y="{at(1, count).split(",")[1]}">{count}</text>'
        for count in WORKERS
    )
    size = side + 2 * margin
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" font-size="12">'
        f'<polyline points="{ideal}" fill="none" stroke="gray" stroke-dasharray="4"/>'
        f'<polyline points="{found}" fill="none" stroke="black"/>{labels}'
        f'<text x="{margin}" y="20">speed-up by workers, 1 TB of bf16 to Q4_K</text></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=4, help="size of the checkpoint")
    parser.add_argument("--texts", type=int, default=20_000, help="texts to embed; 0 for none")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="directory of an embedding model")
    parser.add_argument("--storage", type=float, default=5, help="GB/s of the shared storage that is simulated")
    parser.add_argument("--folder", help="folder of the checkpoint, which stays")
    parser.add_argument("--make", action="store_true", help="make the checkpoint, and measure nothing")
    parser.add_argument("--only", choices=["quantize", "embed", "simulation"], help="one part")
    parser.add_argument("--piece-seconds", type=float, help="seconds of a piece, measured earlier")
    parser.add_argument("--plot", type=Path, help="SVG of the simulation")
    arguments = parser.parse_args()
    result: dict[str, object] = {}
    piece = arguments.piece_seconds
    if arguments.only in (None, "quantize"):
        with contextlib.ExitStack() as end:
            folder = Path(arguments.folder or end.enter_context(tempfile.TemporaryDirectory()))
            model = folder / "model"
            if not model.exists():
                model = checkpoint(folder, int(arguments.gb * 1e9))
            nbytes = sum(path.stat().st_size for path in model.glob("*.safetensors"))
            if arguments.make:
                return
            result["quantize"] = timed = quantized(folder, model)
        result["bytes"] = nbytes
        piece = piece or timed["local:2"]["work"] * 2 / (nbytes / READ_PER_WRITTEN / PIECE)
    if arguments.texts and arguments.only in (None, "embed"):
        result["embed"] = embedded(arguments.model, arguments.texts)
    if piece is None:
        print(json.dumps(result, indent=2))
        return
    with cc.cluster("local:2") as cluster:
        overhead = statistics.median(scheduler_seconds(cluster) for _ in range(3))
    spread = [piece * factor for factor in (0.8, 0.9, 1.0, 1.1, 1.2)]
    rows = simulated(spread, overhead, arguments.storage * 1e9)
    result |= {"piece_seconds": piece, "scheduler_seconds": overhead, "simulation": rows}
    if arguments.plot is not None:
        plot(rows, arguments.plot)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
