"""Speed and peak memory of converting a large checkpoint in memory-backed storage, against `cp`, torch and gguf-py.

    python benchmarks/convert.py [--gigabytes 4] [--runs 7] [--folder /dev/shm] [--rows RE]

Every row is a whole process. Runs of the rows are interleaved and medians printed; the speedup is cp's time over the
row's. Memory is the peak resident memory above that of the process before it converts. Peers that are not installed
are skipped and listed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

CLI = "from candle_convert.convert.cli.main import main; main({arguments!r})"
MEASURED = """
import sys, time
{setup}
def peak():
    return next(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmHWM'))
base = peak()
try:
    {body}
except SystemExit as end:
    assert not end.code, end.code
print(peak() - base)
"""
TORCH = "sd = torch.load({source!r}, weights_only=True); safetensors.torch.save_file(sd, {target!r})"
GGUF = """
    from safetensors import safe_open
    writer = gguf.GGUFWriter({target!r}, 'llama')
    with safe_open({source!r}, 'np') as file:
        for name in file.keys():
            writer.add_tensor(name, file.get_tensor(name))
        writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
"""


@dataclass
class Row:
    """A command, its output file and its measurements."""

    name: str
    command: list[str]
    output: Path
    seconds: list[float] = field(default_factory=list)
    memory: int | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4, help="size of the checkpoint")
    parser.add_argument("--runs", type=int, default=7, help="runs of each row")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="folder of temporary files")
    parser.add_argument("--rows", type=re.compile, default=re.compile(""), metavar="RE", help="rows besides cp")
    arguments = parser.parse_args()
    folder = arguments.folder / "candle-convert-benchmark"
    folder.mkdir(exist_ok=True)
    try:
        source = make_checkpoint(folder / "in.safetensors", int(arguments.gigabytes * 1e9))
        rows = [row for row in rows_of(source, folder) if row.name == "cp" or arguments.rows.search(row.name)]
        for _ in range(arguments.runs):
            for row in rows:
                run(row)
        report(rows, source)
        inspect_report(source, arguments.runs)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def make_checkpoint(path: Path, nbytes: int) -> Path:
    """Write a safetensors file with the f32 tensors of a llama-shaped model and a repeated block of values."""
    shapes = [[4096, 4096]] * 4 + [[11008, 4096]] * 3 + [[4096]] * 2
    header, position, number = {}, 0, 0
    while position < nbytes:
        for shape in shapes:
            size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            entry = {"dtype": "F32", "shape": shape, "data_offsets": [position, position + size]}
            header[f"model.layers.{number}.weight"] = entry
            position, number = position + size, number + 1
            if position >= nbytes:
                break
    text = json.dumps(header).encode()
    block = struct.pack("<1048576f", *(value / 1048576 - 0.5 for value in range(1048576)))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while position > 0:
            file.write(block[:position])
            position -= len(block)
    return path


def rows_of(source: Path, folder: Path) -> list[Row]:
    """All rows; the first one is cp."""
    rows = [Row("cp", ["cp", str(source), str(folder / "cp.bin")], folder / "cp.bin")]

    def convert(source: Path, target: Path, *options: str) -> list[str]:
        return _measured("", CLI.format(arguments=["convert", str(source), str(target), "-f", "-q", *options]))

    def ours(name: str, *options: str, suffix: str, source: Path = source) -> None:
        target = folder / f"out{suffix}"
        rows.append(Row(name, convert(source, target, *options), target))

    ours("safetensors -> safetensors", suffix=".safetensors")
    ours("safetensors -> safetensors, --verify none", "--verify", "none", suffix=".safetensors")
    for suffix in (".gguf", ".npz", ".pth"):
        ours(f"safetensors -> {suffix[1:]}", suffix=suffix)
    ours("safetensors -> safetensors, --dtype bf16", "--dtype", "bf16", suffix=".safetensors")
    ours("safetensors -> safetensors, --dtype f16", "--dtype", "f16", suffix=".safetensors")
    peers = {"torch": ("safetensors", "torch"), "gguf": ("gguf", "safetensors")}
    for name, needs in peers.items():
        if missing := [package for package in needs if importlib.util.find_spec(package) is None]:
            print(f"skipped: {name} ({', '.join(missing)} not installed)")
    pth = folder / "in.pth"
    subprocess.run(convert(source, pth), check=True, capture_output=True)
    ours("pth -> safetensors", suffix=".safetensors", source=pth)
    if importlib.util.find_spec("torch"):
        target = folder / "torch.safetensors"
        body = TORCH.format(source=str(pth), target=str(target))
        command = _measured("import torch, safetensors.torch", body)
        rows.append(Row("pth -> safetensors, torch.load + save_file", command, target))
    if importlib.util.find_spec("gguf"):
        target = folder / "peer.gguf"
        body = GGUF.format(source=str(source), target=str(target))
        rows.append(Row("safetensors -> gguf, gguf-py", _measured("import gguf", body), target))
    return rows


def _measured(setup: str, body: str) -> list[str]:
    return [sys.executable, "-c", MEASURED.format(setup=setup, body=body)]


def run(row: Row) -> None:
    """Time one process and remove its output."""
    start = time.perf_counter()
    done = subprocess.run(row.command, check=True, capture_output=True, text=True)
    row.seconds.append(time.perf_counter() - start)
    if done.stdout.strip():
        row.memory = max(row.memory or 0, int(done.stdout.split()[-1]))
    row.output.unlink()


def report(rows: list[Row], source: Path) -> None:
    """Print the table as Markdown."""
    size = source.stat().st_size
    reference = statistics.median(rows[0].seconds)
    print(f"\n{size / 1e9:.2f} GB, {len(rows[0].seconds)} interleaved runs, {os.cpu_count()} cores\n")
    print("| conversion | median s | min - max s | GB/s | speedup over cp | peak MB |\n|---|---|---|---|---|---|")
    for row in rows:
        middle = statistics.median(row.seconds)
        memory = "" if row.memory is None else f"{row.memory / 1e6:.0f}"
        span = f"{min(row.seconds):.2f} - {max(row.seconds):.2f}"
        rate, speedup = size / middle / 1e9, reference / middle
        print(f"| {row.name} | {middle:.2f} | {span} | {rate:.2f} | {speedup:.2f} | {memory} |")


def inspect_report(source: Path, runs: int) -> None:
    """Print the time of `inspect` as a process, and of starting Python."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import candle_convert": ["-c", "import candle_convert"],
        "candle-convert --help": ["-c", CLI.format(arguments=["--help"])],
        "candle-convert inspect": ["-c", CLI.format(arguments=["inspect", str(source)])],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            times[name].append(time.perf_counter() - start)
    print("\n| process | median ms |\n|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {statistics.median(seconds[1:]) * 1000:.0f} |")


if __name__ == "__main__":
    main()
