"""Quantization of a whole f16 GGUF against llama-quantize: seconds, processor seconds and peak memory by file type.

    CANDLE_LLAMA_QUANTIZE=build/bin/llama-quantize python benchmarks/quantize_files.py [--types Q4_0,Q4_K_M] [--runs 5]
        [--threads 2] [--embedding 2048] [--layers 11 | --size 0.5B] [--max-memory 256MiB] [--folder /dev/shm]
        [--make DIR]

Every run is a whole process, start-up included; runs are interleaved and medians printed. Input and outputs are in
memory-backed storage. The default model is llama-shaped with 492 million weights; `--make DIR` only writes it. File
types that need an importance matrix get one. "same bytes" compares both files. Ours reads back what it encoded and
compares checksums (the default); llama-quantize does not. Kernels and `.pyc` files are compiled before, as for an
installed package.
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

TYPES = (
    "Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,Q2_K,Q3_K_M,Q4_K_M,Q5_K_M,Q6_K,IQ4_NL,IQ4_XS,IQ3_S,IQ3_XXS,IQ2_M,IQ2_XS,IQ2_XXS,IQ1_M,"
    "IQ1_S,TQ1_0,TQ2_0,F16,BF16"
)
LAYERS = {"0.5B": 11, "1.5B": 33}
NEED_IMPORTANCE = ("IQ1", "IQ2", "IQ3_XXS")
OURS = "from candle_convert.convert.cli.main import main; main()"


@dataclass
class Side:
    """One program: its command and its measurements."""

    command: list[str]
    output: Path
    environment: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int = 0

    def run(self) -> None:
        """Run once, after removing the output."""
        self.output.unlink(missing_ok=True)
        start = time.perf_counter()
        process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment
        )
        assert process.stderr is not None
        messages = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        self.seconds.append(time.perf_counter() - start)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(self.command)}\n{messages.decode(errors='replace')[-2000:]}")
        self.cpu.append(used.ru_utime + used.ru_stime)
        self.memory = max(self.memory, used.ru_maxrss * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=TYPES, help="comma-separated file types")
    parser.add_argument("--runs", type=int, default=5, help="runs of each program")
    parser.add_argument("--threads", type=int, default=2, help="threads of each program")
    parser.add_argument("--embedding", type=int, default=2048, help="embedding length of the model")
    parser.add_argument("--layers", type=int, default=11, help="layers of the model")
    parser.add_argument("--size", choices=list(LAYERS), help="number of layers by the size of the model")
    parser.add_argument("--max-memory", default="256MiB", help="memory limit of ours")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="folder of temporary files")
    parser.add_argument("--make", type=Path, metavar="DIR", help="only write model and importance matrix to DIR")
    arguments = parser.parse_args()
    arguments.layers = LAYERS.get(arguments.size, arguments.layers)
    if arguments.make is not None:
        return make(arguments.make, arguments.embedding, arguments.layers)
    tool = os.environ.get("CANDLE_LLAMA_QUANTIZE")
    if tool is None:
        parser.error("set CANDLE_LLAMA_QUANTIZE to the path of llama-quantize")
    folder = arguments.folder / "candle-convert-quantize"
    folder.mkdir(exist_ok=True)
    try:
        sizes = ["--embedding", str(arguments.embedding), "--layers", str(arguments.layers)]
        subprocess.run([sys.executable, __file__, "--make", str(folder), *sizes], check=True)
        heads = ("type", "ours s", "llama-quantize s", "speedup", "ours CPU s", "llama-quantize CPU s", "CPU speedup")
        heads += ("ours peak MB", "llama-quantize peak MB", "same bytes")
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for name in arguments.types.split(","):
            print(compare(tool, folder, name, arguments), flush=True)
    finally:
        shutil.rmtree(folder)
    return None


def compare(tool: str, folder: Path, name: str, arguments: argparse.Namespace) -> str:
    """Row of the table for one file type."""
    source = str(folder / "model.gguf")
    importance = ["--imatrix", str(folder / "imatrix.gguf")] if name.startswith(NEED_IMPORTANCE) else []
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    limits = ["--threads", str(arguments.threads), "--max-memory", arguments.max_memory, "-q"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "pyc")
    command = [sys.executable, "-c", OURS, "quantize", source, str(ours), name, *importance, *limits]
    sides = (
        Side([tool, *importance, source, str(theirs), name, str(arguments.threads)], theirs, environment),
        Side(command, ours, environment),
    )
    for _ in range(2):
        warm_up = [*sides[1].command, "--force", "--exclude", r"^blk\.[1-9]"]
        subprocess.run(warm_up, check=True, capture_output=True, env=environment)
    for _ in range(arguments.runs):
        for side in sides:
            side.run()
    same = subprocess.run(["cmp", "-s", ours, theirs], check=False).returncode == 0
    cells = []
    for measure in ("seconds", "cpu"):
        peer, mine = (statistics.median(getattr(side, measure)) for side in sides)
        cells += [f"{mine:.2f}", f"{peer:.2f}", f"{peer / mine:.2f}"]
    cells += [f"{side.memory / 1e6:.0f}" for side in reversed(sides)]
    return f"| {name} | {' | '.join(cells)} | {'yes' if same else 'NO'} |"


def make(folder: Path, embedding: int, layers: int) -> None:
    """Write a llama-shaped model of random weights, and an importance matrix for it."""
    import candle_convert as cc
    import numpy as np

    random = np.random.default_rng(0)
    inner, kv, vocab = embedding * 11 // 4 // 256 * 256, embedding // 4, 4000
    shapes = {"token_embd.weight": (vocab, embedding), "output.weight": (vocab, embedding)}
    shapes["output_norm.weight"] = (embedding,)
    for layer in range(layers):
        block = {
            "attn_norm": (embedding,), "attn_q": (embedding, embedding), "attn_k": (kv, embedding),
            "attn_v": (kv, embedding), "attn_output": (embedding, embedding), "ffn_norm": (embedding,),
            "ffn_gate": (inner, embedding), "ffn_up": (inner, embedding), "ffn_down": (embedding, inner),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    arrays, importance = {}, {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32)
        arrays[name] = values if len(shape) == 1 else (values * np.float32(0.02)).astype(np.float16)
        if len(shape) > 1 and name != "token_embd.weight":
            importance[f"{name}.in_sum2"] = random.random((1, shape[1]), np.float32) + 0.1
            importance[f"{name}.counts"] = np.ones((1, 1), np.float32)
    config = {"context_length": 64, "embedding_length": embedding, "block_count": layers, "feed_forward_length": inner}
    config |= {"attention.head_count": embedding // 64, "attention.head_count_kv": kv // 64}
    metadata = {"general.architecture": "llama", "general.file_type": np.uint32(1)}
    metadata |= {f"llama.{key}": np.uint32(value) for key, value in config.items()}
    metadata |= {"llama.attention.layer_norm_rms_epsilon": np.float32(1e-5), "tokenizer.ggml.model": "llama"}
    metadata |= {"tokenizer.ggml.tokens": [f"t{index}" for index in range(vocab)]}
    metadata |= {"tokenizer.ggml.scores": -np.arange(vocab, dtype=np.float32)}
    metadata |= {"tokenizer.ggml.token_type": np.ones(vocab, np.int32)}
    cc.save_file(arrays, folder / "model.gguf", metadata=metadata)
    matrix = {"general.type": "imatrix", "imatrix.datasets": ["text"]}
    matrix |= {"imatrix.chunk_count": np.uint32(5), "imatrix.chunk_size": np.uint32(512)}
    cc.save_file(importance, folder / "imatrix.gguf", metadata=matrix)


if __name__ == "__main__":
    main()
