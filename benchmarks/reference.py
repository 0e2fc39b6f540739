"""Every output of a reference case, computed through the public interface.

    python benchmarks/reference.py CASE_DIR OUT.npz [--threads 1]

CASE_DIR has a checkpoint (config.json, model.safetensors), `inputs.npz` with arrays named VARIANT/ARGUMENT, and
`outputs.npz`, whose names (VARIANT/OUTPUT) say what is computed. OUT.npz gets arrays of these names; `hidden_states.N`
is left out. Rows of padding are zero, as in the case.
"""

import argparse
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.models.pipelines.pooling import mean_pooled, normalized


def computed(model, inputs):
    """Every output of an encoder by name, and the pooled hidden states."""
    found, mask = model(**inputs), inputs.get("attention_mask")
    if mask is not None:
        found = {name: item * mask[..., None] if item.ndim == 3 else item for name, item in found.items()}
    if "last_hidden_state" in found:
        found["mean_pooled"] = mean_pooled(found["last_hidden_state"], mask)
        found["mean_pooled_l2"] = normalized(found["mean_pooled"])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path, metavar="CASE_DIR")
    parser.add_argument("out", type=Path, metavar="OUT.npz")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    inputs, names = np.load(arguments.case / "inputs.npz"), np.load(arguments.case / "outputs.npz").files
    model = cc.models.load(arguments.case / "model.safetensors", threads=arguments.threads)
    results = {}
    for variant in dict.fromkeys(name.partition("/")[0] for name in names):
        feeds = {name.partition("/")[2]: inputs[name] for name in inputs.files if name.startswith(f"{variant}/")}
        found = computed(model, feeds)
        wanted = [name for name in names if name.startswith(f"{variant}/") and "/hidden_states." not in name]
        results |= {name: found[name.partition("/")[2]] for name in wanted}
    np.savez(arguments.out, **results)
    print(f"{len(results)} arrays in {arguments.out}")


if __name__ == "__main__":
    main()
