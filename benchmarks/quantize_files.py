"""Whole files against llama-quantize: seconds, processor seconds and peak memory for every file type, on a llama-shaped f16 GGUF.

    CANDLE_LLAMA_QUANTIZE=build/bin/llama-quantize python benchmarks/quantize_files.py [--types Q4_0,Q4_K_M] [--runs 5] [--threads 2]
        [--embedding 2048] [--layers 11 | --size 0.5B] [--max-memory 256MiB] [--folder /dev/shm] [--make DIR]

Every run is a whole process, start-up included; ours and theirs take turns, medians are printed. Input and outputs are in memory-backed
storage. The defaults make a model of 492 million weights; `--make` makes it in a folder and does nothing else. File types that need an
importance matrix get one. Also checked: that both wrote the same bytes. Ours reads back all that it encoded and compares checksums (the
default); llama-quantize does not. What has to be compiled is compiled before, Python's own files included, as an installed package has them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

TYPES = "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,Q2_K,Q3_K_M,Q4_K_M,Q5_K_M,Q6_K,IQ4_NL,IQ4_XS,IQ3_S,IQ3_XXS,IQ2_M,IQ2_XS,IQ2_XXS,IQ1_M,IQ1_S,TQ1_0,TQ2_0,F16,BF16"
LAYERS = {"0.5B": 11, "1.5B": 33}
NEED_IMPORTANCE = ("IQ1", "IQ2", "IQ3_XXS")
OURS = "from candle_convert.convert.cli import main; main()"


@dataclass
class Side:
    """What was measured of one program."""

    command: list[str]
    output: Path
    environment: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int = 0

    def run(self) -> None:
        """Once, with the output removed before."""
        self.output.unlink(missing_ok=True)
        began = time.perf_counter()
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        self.seconds.append(time.perf_counter() - began)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(self.command)}\n{said.decode(errors='replace')[-2000:]}")
        self.cpu.append(used.ru_utime + used.ru_stime)
        self.memory = max(self.memory, used.ru_maxrss * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--embedding", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=11)
    parser.add_argument("--size", choices=list(LAYERS), help="layers that give a model of the default embedding this size")
    parser.add_argument("--max-memory", default="256MiB")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--make", type=Path)
    arguments = parser.parse_args()
    arguments.layers = LAYERS.get(arguments.size, arguments.layers)
    if arguments.make is not None:
        return make(arguments.make, arguments.embedding, arguments.layers)
    tool = os.environ.get("CANDLE_LLAMA_QUANTIZE")
    if tool is None:
        parser.error("CANDLE_LLAMA_QUANTIZE does not name llama-quantize")
    folder = arguments.folder / "candle-convert-quantize"
    folder.mkdir(exist_ok=True)
    try:
        sizes = ["--embedding", str(arguments.embedding), "--layers", str(arguments.layers)]
        subprocess.run([sys.executable, __file__, "--make", str(folder), *sizes], check=True)
        print("| type | llama-quantize s | ours s | ratio | processor s | ours | ratio | peak MB | ours | same bytes |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name in arguments.types.split(","):
            print(compare(tool, folder, name, arguments), flush=True)
    finally:
        shutil.rmtree(folder)
    return None


def compare(tool: str, folder: Path, name: str, arguments: argparse.Namespace) -> str:
    """One row of the table."""
    source = str(folder / "model.gguf")
    importance = ["--imatrix", str(folder / "imatrix.gguf")] if name.startswith(NEED_IMPORTANCE) else []
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    limits = ["--threads", str(arguments.threads), "--max-memory", arguments.max_memory, "-q"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "pyc")
    sides = (
        Side([tool, *importance, source, str(theirs), name, str(arguments.threads)], theirs, environment),
        Side([sys.executable, "-c", OURS, "quantize", source, str(ours), name, *importance, *limits], ours, environment),
    )
    for _ in range(2):
        subprocess.run([*sides[1].command, "--force", "--exclude", r"^blk\.[1-9]"], check=True, capture_output=True, env=environment)
    for _ in range(arguments.runs):
        for side in sides:
            side.run()
    same = subprocess.run(["cmp", "-s", ours, theirs], check=False).returncode == 0
    peer, mine = (statistics.median(side.seconds) for side in sides)
    theirs_cpu, ours_cpu = (statistics.median(side.cpu) for side in sides)
    cpu = f"{theirs_cpu:.2f} | {ours_cpu:.2f} | {theirs_cpu / ours_cpu:.2f}"
    memory = " | ".join(f"{side.memory / 1e6:.0f}" for side in sides)
    return f"| {name} | {peer:.2f} | {mine:.2f} | {peer / mine:.2f} | {cpu} | {memory} | {'yes' if same else 'NO'} |"


def make(folder: Path, embedding: int, layers: int) -> None:
    """A model of random weights, and an importance matrix for it."""
    import candle_convert as cc
    import numpy as np

    random = np.random.default_rng(0)
    inner, kv, vocab = embedding * 11 // 4 // 256 * 256, embedding // 4, 4000
    shapes = {"token_embd.weight": (vocab, embedding), "output.weight": (vocab, embedding), "output_norm.weight": (embedding,)}
    for layer in range(layers):
        block = {
            "attn_norm": (embedding,), "attn_q": (embedding, embedding), "attn_k": (kv, embedding), "attn_v": (kv, embedding),
            "attn_output": (embedding, embedding), "ffn_norm": (embedding,), "ffn_gate": (inner, embedding), "ffn_up": (inner, embedding),
            "ffn_down": (embedding, inner),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    arrays, importance = {}, {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32)
        arrays[name] = values if len(shape) == 1 else (values * np.float32(0.02)).astype(np.float16)
        if len(shape) > 1 and name != "token_embd.weight":
            importance |= {f"{name}.in_sum2": random.random((1, shape[1]), np.float32) + 0.1, f"{name}.counts": np.ones((1, 1), np.float32)}
    numbers = {"context_length": 64, "embedding_length": embedding, "block_count": layers, "feed_forward_length": inner}
    numbers |= {"attention.head_count": embedding // 64, "attention.head_count_kv": kv // 64}
    metadata = {"general.architecture": "llama", "general.file_type": np.uint32(1)}
    metadata |= {f"llama.{key}": np.uint32(value) for key, value in numbers.items()}
    metadata |= {"llama.attention.layer_norm_rms_epsilon": np.float32(1e-5), "tokenizer.ggml.model": "llama"}
    metadata |= {"tokenizer.ggml.tokens": [f"t{number}" for number in range(vocab)]}
    metadata |= {"tokenizer.ggml.scores": -np.arange(vocab, dtype=np.float32), "tokenizer.ggml.token_type": np.ones(vocab, np.int32)}
    cc.save_file(arrays, folder / "model.gguf", metadata=metadata)
    matrix = {"general.type": "imatrix", "imatrix.datasets": ["text"], "imatrix.chunk_count": np.uint32(5), "imatrix.chunk_size": np.uint32(512)}
    cc.save_file(importance, folder / "imatrix.gguf", metadata=matrix)


if __name__ == "__main__":
    main()
