"""Every output of a reference case, computed through the public interface.

    python benchmarks/reference.py CASE_DIR OUT.npz [--threads 1]

CASE_DIR has a checkpoint (config.json and weights), `inputs.npz` with arrays named VARIANT/ARGUMENT, and `outputs.npz`,
whose names (VARIANT/OUTPUT) say what is computed. OUT.npz gets arrays of these names; `hidden_states.N` is left out.
Rows of padding are zero, as in the case. The variant `cache` runs through the cache, `greedy` through the generator.

A directory with several checkpoints is run from each: arrays of the further ones are named FILE:VARIANT/OUTPUT, and the
exit status is 1 if one of them differs from the first by more than the tolerance of the case.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.models.pipelines.pooling import mean_pooled, normalized
from candle_convert.models.seq2seq.encoder_decoder_model import EncoderDecoderModel
from candle_convert.runtime.tensor.storage import Held

TASKS = {"embedding": "feature-extraction"}
"""Tasks of the cases that the checkpoint does not name."""
BIDIRECTIONAL = "non-causal"
"""Beginning of the note of cases whose tokens attend to all others, though the checkpoint does not say so."""
ARRAYS = {"inputs.npz", "outputs.npz"}
CHECKS = ("max_diff_to_full", "min_margin")
"""Outputs that tell how far others can be trusted."""
WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".npz", ".gguf", ".onnx")


def checkpoints(case):
    """The weight files of a case; of a sharded checkpoint the index."""
    names = sorted(path.name for path in case.iterdir() if path.name.endswith((*WEIGHTS, ".index.json")))
    whole = [name for name in names if name not in ARRAYS and not re.search(r"-\d{5}-of-\d{5}\.", name)]
    return [case / name for name in sorted(whole, key=lambda name: not name.startswith("model."))]


def cached(model, input_ids, prefill):
    """Logits of a prompt and of the tokens after it, one at a time, and their distance from those without a cache."""
    found, cache = model.step(input_ids[:, :prefill])
    steps = [found]
    for position in range(int(prefill), input_ids.shape[1]):
        found, cache = model.step(input_ids[:, position : position + 1], cache)
        steps.append(found)
    logits = np.concatenate(steps, 1)
    return {"logits": logits, "max_diff_to_full": np.abs(logits - model.logits(input_ids)).max()}


def decoded(model, input_ids, decoder_input_ids, attention_mask=None):
    """Logits of the decoder's tokens, one at a time, and their distance from those without a cache."""
    cache, steps = model.start(input_ids, attention_mask), []
    for position in range(decoder_input_ids.shape[1]):
        found, cache = model.decoder.step(decoder_input_ids[:, position : position + 1], cache)
        steps.append(found)
    logits = np.concatenate(steps, 1)
    whole = model(input_ids, attention_mask, decoder_input_ids)["logits"]
    return {"logits": logits, "max_diff_to_full": np.abs(logits - whole).max()}


def greedy(model, input_ids, length):
    """A sequence of `length` tokens, the prompt included or the decoder's, and the smallest margin between the two most
    probable tokens of a step."""
    if isinstance(model, EncoderDecoderModel):
        sequences, generated = np.array([model.greedy(input_ids[0].tolist(), length - 1)]), length - 1
        logits = model(input_ids, decoder_input_ids=sequences)["logits"]
    else:
        generated = length - input_ids.shape[1]
        sequences = np.concatenate([input_ids, [model.greedy(input_ids[0].tolist(), generated)]], 1)
        logits = model.logits(sequences)
    best = np.sort(logits[0, length - generated - 1 : -1])[:, -2:]
    return {"sequences": sequences, "min_margin": np.float32((best[:, 1] - best[:, 0]).min())}


def forward(model, inputs):
    """The outputs of one run by name, and the pooled hidden states."""
    found, mask = model(**inputs), inputs.get("attention_mask")
    if mask is not None:
        masked = {name for name, item in found.items() if item.ndim == 3 and item.shape[:2] == mask.shape}
        found = {name: item * mask[..., None] if name in masked else item for name, item in found.items()}
    hidden = found.get("last_hidden_state")
    if hidden is not None:
        found["last_token"] = normalized(hidden[:, -1])
        found["mean_pooled"] = mean_pooled(hidden, mask)
        found["mean_pooled_l2"] = normalized(found["mean_pooled"])
    return found


def embeddings(model, input_ids, attention_mask):
    """Vectors of length 1 by pooling and further layers, as the checkpoint has them."""
    texts = [row[mask != 0].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
    return model.embed(texts, normalize=True)


def computed(model, variant, inputs, wanted):
    """The outputs of a variant by name."""
    if variant == "cache":
        return decoded(model, **inputs) if isinstance(model, EncoderDecoderModel) else cached(model, **inputs)
    if variant == "greedy":
        return greedy(model, inputs["input_ids"], wanted["sequences"].shape[1])
    return forward(model, inputs) | ({"embedding": embeddings(model, **inputs)} if "embedding" in wanted else {})


def opened(path, meta):
    """What `load` takes: the path of a checkpoint, or its graph with the `is_causal` in config.json that the case
    passes to the reference as a mask."""
    if not (meta.get("note") or "").startswith(BIDIRECTIONAL):
        return path
    graph = cc.open(path)
    config = json.loads((path.parent / "config.json").read_text()) | {"is_causal": False}
    graph.attachments["config.json"] = Held(json.dumps(config).encode())
    return graph


def results_of(path, meta, inputs, outputs, threads):
    """The arrays of the outputs, computed from one checkpoint."""
    task = TASKS.get(meta["task"])
    model = cc.models.load(opened(path, meta), task=task, threads=threads, activations="f32")
    results = {}
    for variant in dict.fromkeys(name.partition("/")[0] for name in outputs):
        feeds, wanted = (
            {name.partition("/")[2]: item for name, item in arrays.items() if name.startswith(f"{variant}/")}
            for arrays in (inputs, outputs)
        )
        found = computed(model, variant, feeds, wanted)
        results |= {f"{variant}/{name}": found[name] for name in wanted if not name.startswith("hidden_states.")}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path, metavar="CASE_DIR")
    parser.add_argument("out", type=Path, metavar="OUT.npz")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    inputs, outputs = (dict(np.load(arguments.case / name)) for name in ("inputs.npz", "outputs.npz"))
    meta = json.loads((arguments.case / "meta.json").read_text())
    first, further = {}, {}
    for path in checkpoints(arguments.case):
        found = results_of(path, meta, inputs, outputs, arguments.threads)
        if first:
            further |= {f"{path.name}:{name}": item for name, item in found.items() if not name.endswith(CHECKS)}
        else:
            first = found
    bounds = {name: meta["tolerance"]["relative_to_max"] * np.abs(item).max() for name, item in first.items()}
    differ = [
        name
        for name, item in further.items()
        if np.abs(item - first[name.partition(":")[2]]).max() > bounds[name.partition(":")[2]]
    ]
    np.savez(arguments.out, **first, **further)
    print(f"{len(first | further)} arrays in {arguments.out}", *(f"differs: {name}" for name in differ), sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
