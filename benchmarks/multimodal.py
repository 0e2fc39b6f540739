"""Models of pictures and texts with random weights, against onnxruntime and transformers.

    python benchmarks/multimodal.py [CASE ...] [--threads 2] [--rounds 5]

CASE: clip-pictures-1, clip-pictures-32, clip-texts-1, clip-texts-32: batches of the towers of CLIP ViT-B/32 a second;
smolvlm-first: seconds to the first token after one picture of 512 x 512 (64 rows of features); smolvlm-tokens: seconds
of 32 further tokens. The model is of the shape of SmolVLM-256M, in f32. Each engine has a process of its own and waits
while the others run; figures are medians of rounds in which all take turns. onnxruntime runs the graphs that
`candle-convert -t onnx` writes; its generation is not compared. Difference: the largest one to transformers, relative
to the largest value.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

import numpy as np  # noqa: E402

sys.path.append(str(HERE))
from engines import timed_rounds  # noqa: E402

OURS, TORCH, ONNX = "candle-convert", "transformers", "onnxruntime"
CASES = {
    **{f"clip-{kind}-{batch}": (OURS, ONNX, TORCH) for kind in ("pictures", "texts") for batch in (1, 32)},
    "smolvlm-first": (OURS, TORCH),
    "smolvlm-tokens": (OURS, TORCH),
}
FEATURES, PLACEHOLDER, TOKENS = 64, 49190, 32
LLAMA = {
    "model_type": "llama", "vocab_size": 49280, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192,
}  # fmt: skip
SIGLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 512, "patch_size": 16,
}  # fmt: skip


def written(folder):
    """Write the models as directories, and CLIP's graphs as ONNX files."""
    import candle_convert as cc
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.CLIPModel(transformers.CLIPConfig()).save_pretrained(f"{folder}/clip")
    cc.convert(f"{folder}/clip", f"{folder}/clip-onnx", to="onnx")
    config = transformers.Idefics3Config(
        vision_config=SIGLIP, text_config=LLAMA, scale_factor=4, image_token_id=PLACEHOLDER
    )
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(f"{folder}/smolvlm")


def arrays(case):
    """The inputs of a case."""
    random = np.random.default_rng(0)
    if case.startswith("clip"):
        batch = int(case.rsplit("-", 1)[1])
        if "pictures" in case:
            return {"pixel_values": random.standard_normal((batch, 3, 224, 224), np.float32)}
        ids = random.integers(1, 40000, (batch, 77))
        ids[:, -1] = 49407
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    ids = np.concatenate([random.integers(5, 40000, 8), np.full(FEATURES, PLACEHOLDER), random.integers(5, 40000, 12)])
    pixels = random.standard_normal((1, 1, 3, 512, 512), np.float32)
    return {"input_ids": ids[None], "attention_mask": np.ones((1, len(ids)), np.int64), "pixel_values": pixels}


def runner(engine, case, folder, threads):
    """A function that runs a case once and returns its seconds and an array."""
    fed = arrays(case)
    if case.startswith("clip"):
        return timed(tower(engine, "pictures" in case, folder, threads), fed)
    generate = ours_generating(folder, threads) if engine == OURS else torch_generating(folder, threads)
    return lambda: generate(fed, TOKENS if case.endswith("tokens") else 1)


def timed(run, fed):
    """A function that measures one run."""

    def once():
        start = time.perf_counter()
        result = run(fed)
        return time.perf_counter() - start, np.asarray(result)

    return once


def tower(engine, pictures, folder, threads):
    """A function from arrays to the embeddings of a tower of CLIP."""
    name = "vision_model" if pictures else "text_model"
    output = "image_embeds" if pictures else "text_embeds"
    if engine == ONNX:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        (path,) = Path(folder, "clip-onnx").rglob(f"{name}.onnx")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = {value.name for value in session.get_inputs()}
        return lambda fed: session.run([output], {key: array for key, array in fed.items() if key in names})[0]
    if engine == OURS:
        import candle_convert as cc

        model = cc.models.load(f"{folder}/clip", threads=threads)
        encoder = model.vision_model if pictures else model.text_model
        return lambda fed: encoder(**fed)[output]
    import torch
    import transformers

    torch.set_num_threads(threads)
    kind = "CLIPVisionModelWithProjection" if pictures else "CLIPTextModelWithProjection"
    model = getattr(transformers, kind).from_pretrained(f"{folder}/clip").eval()

    def run(fed):
        with torch.inference_mode():
            return model(**{key: torch.from_numpy(array) for key, array in fed.items()})[output].numpy()

    return run


def ours_generating(folder, threads):
    """A function from arrays and a number of tokens to the seconds and the logits of the first token."""
    import candle_convert as cc

    model = cc.models.load(f"{folder}/smolvlm", threads=threads)

    def generate(fed, count):
        ids, mask, pixels = fed["input_ids"], fed["attention_mask"], fed["pixel_values"][0]
        start = time.perf_counter()
        cache = model.start_with(model.embedded(ids, mask, {"pixel_values": pixels}))
        logits = model.advance(ids, cache)
        first = time.perf_counter()
        found = logits.reshape(-1).copy()
        for _ in range(count - 1):
            logits = model.advance(logits.reshape(1, -1).argmax(-1, keepdims=True), cache)
        return (first - start if count == 1 else time.perf_counter() - first), found

    return generate


def torch_generating(folder, threads):
    """As `ours_generating`, of transformers."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.Idefics3ForConditionalGeneration.from_pretrained(f"{folder}/smolvlm").eval()

    def generate(fed, count):
        given = {key: torch.from_numpy(array) for key, array in fed.items()}
        start = time.perf_counter()
        with torch.inference_mode():
            out = model(**given, use_cache=True, logits_to_keep=1)
            logits = out.logits[0, -1]
            first = time.perf_counter()
            found = logits.numpy().copy()
            for _ in range(count - 1):
                out = model(
                    input_ids=logits.argmax().reshape(1, 1), past_key_values=out.past_key_values, use_cache=True
                )
                logits = out.logits[0, -1]
        return (first - start if count == 1 else time.perf_counter() - first), found

    return generate


def serve(engine, case, folder, threads):
    """Run a case for each line of standard input; print seconds and peak bytes."""
    once = runner(engine, case, folder, threads)
    np.save(f"{folder}/{engine}-{case}.npy", once()[1])
    once()
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        seconds, _ = once()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({"seconds": seconds, "peak": int(status["VmHWM"].split()[0]) * 1024}), flush=True)


def compare(case, folder, arguments):
    """Print a row for each engine of a case."""
    processes = {}
    for engine in CASES[case]:
        command = [sys.executable, __file__, "--serve", engine, case, folder, "--threads", str(arguments.threads)]
        processes[engine] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if not processes[engine].stdout.readline():
            raise SystemExit(f"{engine} failed; run it with: {' '.join(command)}")
    found = timed_rounds(processes, arguments.rounds)
    seconds = {engine: statistics.median(run["seconds"] for run in runs) for engine, runs in found.items()}
    reference = np.load(f"{folder}/{TORCH}-{case}.npy")
    for engine, runs in found.items():
        difference = np.abs(np.load(f"{folder}/{engine}-{case}.npy") - reference).max() / np.abs(reference).max()
        peak = max(run["peak"] for run in runs) / 1e6
        ratio = seconds[engine] / seconds[OURS]
        print(
            f"| {case} | {engine} | {1e3 * seconds[engine]:.1f} | {ratio:.2f} | {peak:.0f} | {difference:.1e} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of all engines")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve, arguments.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        written(folder)
        print("| case | engine | ms | engine's time / ours | peak MB | difference |\n|---|---|---|---|---|---|")
        for case in arguments.cases or CASES:
            compare(case, folder, arguments)


if __name__ == "__main__":
    main()
