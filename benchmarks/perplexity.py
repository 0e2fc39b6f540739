"""Perplexity and KL divergence of types chosen by measured error, against llama.cpp's mixes of the same file size.

    python benchmarks/perplexity.py MODEL --text TEXT [--imatrix FILE] [--mixes Q2_K,Q3_K_M] [--chunks 8]
        [--folder /dev/shm]

MODEL is a language model with unquantized weights, as GGUF or directory. It is quantized to each mix, then with
`--target-size` to the size of that file. Both are compared with MODEL on the second half of each chunk of 512 tokens:
perplexity, and mean Kullback-Leibler divergence of the predictions with its standard error. The importance matrix must
come from another text.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import candle_convert as cc
from candle_convert import models
from candle_convert.convert.evaluate.perplexity import score
from candle_convert.convert.evaluate.text_corpus import pieces

CONTEXT = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="language model with unquantized weights")
    parser.add_argument("--text", required=True, help="text to score")
    parser.add_argument("--imatrix", type=Path, help="importance matrix for both sides")
    parser.add_argument("--mixes", default="Q2_K,Q3_K_M,Q4_K_M", help="comma-separated file types")
    parser.add_argument("--chunks", type=int, default=8, help="chunks of 512 tokens")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="folder of temporary files")
    arguments = parser.parse_args()
    folder = arguments.folder / "candle-convert-perplexity"
    folder.mkdir(exist_ok=True)
    try:
        base = models.load(arguments.model)
        cut = pieces(base.tokenizer, [arguments.text], CONTEXT, arguments.chunks)
        print(f"{len(cut)} chunks, perplexity of the model {score(base, cut).estimates()[0].value:.4f}\n")
        print("| mix | mix bytes | our bytes | mix perplexity | ours | mix KL divergence | ours | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for name in arguments.mixes.split(","):
            mix, auto = folder / "mix.gguf", folder / "auto.gguf"
            cc.quantize(arguments.model, mix, name, imatrix=arguments.imatrix, force=True)
            recipe = cc.Recipe(target_size=mix.stat().st_size, imatrix=arguments.imatrix)
            cc.quantize(arguments.model, auto, recipe, force=True)
            mix_loss, auto_loss = (
                {each.metric: each for each in score(models.load(path), cut, base).estimates()} for path in (mix, auto)
            )
            sizes = f"{mix.stat().st_size:,} | {auto.stat().st_size:,}"
            perplexities = f"{mix_loss['ppl'].value:.3f} | {auto_loss['ppl'].value:.3f}"
            mix_kld, auto_kld = mix_loss["kld"], auto_loss["kld"]
            divergences = " | ".join(f"{each.value:.5f} ± {each.error:.5f}" for each in (mix_kld, auto_kld))
            ratio = auto_kld.value / mix_kld.value
            print(f"| {name} | {sizes} | {perplexities} | {divergences} | {ratio:.2f} |", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
