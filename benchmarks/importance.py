"""Make an importance matrix with transformers: squares of the inputs of all linear layers, summed over a text.

    python benchmarks/importance.py MODEL_DIR TEXT OUT.gguf [--arch bert]

Needs torch and transformers. Names are the GGUF names of the architecture, as in benchmarks/budget.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import candle_convert as cc
import gguf
import numpy as np
import torch
import transformers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="Hugging Face directory")
    parser.add_argument("text", type=Path, help="UTF-8 text, used in chunks of 256 tokens")
    parser.add_argument("output", type=Path, help="GGUF file to write")
    parser.add_argument("--arch", default="bert", help="GGUF architecture whose tensor names are used")
    arguments = parser.parse_args()
    model = transformers.AutoModel.from_pretrained(arguments.model, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arguments.arch)
    names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}

    def watch(name: str, layer: torch.nn.Linear) -> None:
        def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            squares = inputs[0].detach().double().reshape(-1, inputs[0].shape[-1]).square()
            sums[name] = sums.get(name, 0) + squares.sum(0).numpy()
            counts[name] = counts.get(name, 0) + len(squares)

        layer.register_forward_pre_hook(hook)

    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            weight = f"{name}.weight"
            watch(names.get_name(weight, try_suffixes=(".weight",)) or weight, layer)
    tokens = tokenizer(arguments.text.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]
    chunks = [chunk[None] for chunk in tokens.split(256) if len(chunk) == 256]
    with torch.no_grad():
        for chunk in chunks:
            model(input_ids=chunk)
    tensors = {f"{name}.in_sum2": values[None].astype(np.float32) for name, values in sums.items()}
    tensors |= {f"{name}.counts": np.array([[counts[name]]], np.float32) for name in sums}
    metadata = {"general.type": "imatrix", "imatrix.datasets": [arguments.text.name]}
    metadata |= {"imatrix.chunk_count": np.uint32(len(chunks)), "imatrix.chunk_size": np.uint32(256)}
    cc.save_file(tensors, arguments.output, metadata=metadata)
    print(f"{len(sums)} matrices, {len(chunks)} chunks of 256 tokens")


if __name__ == "__main__":
    main()
