"""Types chosen by measured error against llama.cpp's mixes, at the size of each mix: what a text becomes less likely by.

    python benchmarks/perplexity.py MODEL --text TEXT [--imatrix FILE] [--mixes Q2_K,Q3_K_M] [--chunks 8] [--folder /dev/shm]

MODEL is a language model of plain weights, in GGUF or a directory. For every mix it is quantized to it, then with `--target-size` to the size of
that file; both are compared with MODEL on the second half of each piece of 512 tokens: perplexity, and the mean Kullback-Leibler divergence of
the predictions with its standard error. An importance matrix has to be made from another text.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import candle_convert as cc
from candle_convert import models
from candle_convert.convert.running.perplexity import score
from candle_convert.convert.running.texts import pieces

CONTEXT = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", required=True)
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--mixes", default="Q2_K,Q3_K_M,Q4_K_M")
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    arguments = parser.parse_args()
    folder = arguments.folder / "candle-convert-perplexity"
    folder.mkdir(exist_ok=True)
    try:
        base = models.load(arguments.model)
        cut = pieces(base.tokenizer, [arguments.text], CONTEXT, arguments.chunks)
        print(f"{len(cut)} pieces, perplexity of the model itself {score(base, cut).estimates()[0].value:.4f}\n")
        print("| mix | bytes | auto: bytes | mix: perplexity | auto | mix: kld | auto | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for name in arguments.mixes.split(","):
            mix, auto = folder / "mix.gguf", folder / "auto.gguf"
            cc.quantize(arguments.model, mix, name, imatrix=arguments.imatrix, force=True)
            cc.quantize(arguments.model, auto, cc.Recipe(target_size=mix.stat().st_size, imatrix=arguments.imatrix), force=True)
            (mix_ppl, mix_kld), (auto_ppl, auto_kld) = (
                [found[name] for name in ("ppl", "kld")]
                for found in ({each.metric: each for each in score(models.load(path), cut, base).estimates()} for path in (mix, auto))
            )
            sizes = f"{mix.stat().st_size:,} | {auto.stat().st_size:,}"
            losses = " | ".join(f"{each.value:.5f} ± {each.error:.5f}" for each in (mix_kld, auto_kld))
            print(f"| {name} | {sizes} | {mix_ppl.value:.3f} | {auto_ppl.value:.3f} | {losses} | {auto_kld.value / mix_kld.value:.2f} |", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
