"""Seconds of audio a second that codecs encode and decode, against transformers.

    python benchmarks/audio_codec.py [--models encodec,dac,mimi] [--seconds 10] [--rounds 5] [--threads 2]

The models have random weights of a fixed seed and the published sizes: EnCodec of 24 kHz (8 of its codebooks, 6
kbit/s), DAC of 44 kHz, Mimi. The sound is a chirp with noise. Each engine has a process of its own, which runs every
case once to warm up and then waits while the other one runs. `equal`: codes that are those of transformers, of all;
samples are decoded from transformers' codes, `SNR` is against its samples. Peak memory is that of the process, less
what it has after the imports. CPU: processor time of all threads, a second of audio.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]  # onnx.py here would hide the package
OURS, REFERENCE = "candle-convert", "transformers"
DAC = {
    "downsampling_ratios": [2, 4, 8, 8], "n_codebooks": 9, "sampling_rate": 44_100, "decoder_hidden_size": 1536,
    "encoder_hidden_size": 64, "codebook_dim": 8, "codebook_size": 1024,
}  # fmt: skip
MODELS = {"encodec": ("EncodecConfig", {}), "dac": ("DacConfig", DAC), "mimi": ("MimiConfig", {})}
KBITS = 6.0
"""Of EnCodec."""
CODEBOOKS = ("codebook.embed", "codebook.embed_sum")


def make(name, folder):
    """Write a model of random weights, whose codebooks hold different vectors."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind, settings = MODELS[name]
    model = transformers.AutoModel.from_config(getattr(transformers, kind)(**settings)).eval()
    with torch.no_grad():
        for key, tensor in (*model.named_parameters(), *model.named_buffers()):
            if key.endswith(CODEBOOKS):
                tensor.copy_(torch.randn(tensor.shape))
            elif key.endswith("cluster_usage"):
                tensor.fill_(1)
    model.save_pretrained(folder)


def sound(rate, seconds):
    """f32 [samples]."""
    places = np.arange(int(rate * seconds)) / rate
    chirp = np.sin(2 * np.pi * (200 + 150 * places) * places)
    return (0.5 * chirp + 0.02 * np.random.default_rng(0).standard_normal(len(places))).astype(np.float32)


def engine_of(engine, name, folder, threads):
    """Imports an engine; a function that loads the model and returns its rate, and functions that encode samples and
    decode codes."""
    options = {"bandwidth": KBITS} if name == "encodec" else {}
    if engine == OURS:
        import candle_convert as cc

        def ours():
            model = cc.models.load(folder, threads=threads)
            return model.rate, lambda samples: model.encode(samples, **options).codes, lambda codes: model.decode(codes)

        return ours
    import torch
    import transformers

    torch.set_num_threads(threads)

    def reference():
        model = transformers.AutoModel.from_pretrained(folder).eval()
        scales = {"audio_scales": [None]} if name == "encodec" else {}

        def encode(samples):
            with torch.no_grad():
                return model.encode(torch.from_numpy(samples)[None, None], **options).audio_codes.numpy()

        def decode(codes):
            with torch.no_grad():
                return model.decode(audio_codes=torch.from_numpy(codes), **scales).audio_values.numpy()

        return model.config.sampling_rate, encode, decode

    return reference


def status(key):
    """Bytes of a row of /proc/self/status."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows[key].split()[0]) * 1024


def serve(engine, name, folder, arguments):
    """For each line of standard input, encode or decode; write the arrays, and print seconds, those of the processor
    and peak bytes."""
    load, before = engine_of(engine, name, folder, arguments.threads), status("VmRSS")
    rate, encode, decode = load()
    samples = sound(rate, arguments.seconds)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        job = line.strip()
        given = samples if job == "encode" else np.load(folder / f"{REFERENCE}-encode.npy")
        start, worked = time.perf_counter(), time.process_time()
        made = (encode if job == "encode" else decode)(given)
        taken = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - worked}
        np.save(folder / f"{engine}-{job}.npy", made)
        print(json.dumps({**taken, "peak": status("VmHWM") - before}), flush=True)


def measured(name, folder, arguments):
    """The times of both engines for both jobs, interleaved."""
    children = {}
    for engine in (REFERENCE, OURS):
        words = [sys.executable, __file__, "--serve", engine, "--models", name, "--folder", folder]
        words += ["--threads", arguments.threads, "--seconds", arguments.seconds]
        pipe = subprocess.PIPE
        children[engine] = subprocess.Popen([*map(str, words)], stdin=pipe, stdout=pipe, text=True)
        children[engine].stdout.readline()
    found = {}
    for turn in range(arguments.rounds + 1):
        for job in ("encode", "decode"):
            for engine, child in children.items():
                print(job, file=child.stdin, flush=True)
                taken = json.loads(child.stdout.readline())
                if turn:
                    found.setdefault((job, engine), []).append(taken)
    for child in children.values():
        child.stdin.close()
        child.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--serve")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.models, arguments.folder, arguments)
        return
    print(f"{'model':8} {'job':7} {'engine':15} {'x real time':>11} {'CPU':>6} {'peak':>9}  agreement")
    for name in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            make(name, folder)
            found = measured(name, folder, arguments)
            total = {}
            for (job, engine), taken in found.items():
                middle = statistics.median(one["seconds"] for one in taken)
                total[engine] = total.get(engine, 0) + middle
                cpu = statistics.median(one["cpu"] for one in taken) / arguments.seconds
                agreement = ""
                if engine == OURS:
                    theirs, ours = (np.load(folder / f"{each}-{job}.npy") for each in (REFERENCE, OURS))
                    error = np.square(theirs.reshape(ours.shape) - ours, dtype=np.float64).sum()
                    loud = np.square(theirs, dtype=np.float64).sum()
                    same = np.mean(theirs.reshape(ours.shape) == ours)
                    agreement = f"{same:.2%} equal" if job == "encode" else f"SNR {10 * np.log10(loud / error):.0f} dB"
                peak = max(one["peak"] for one in taken) / 2**20
                speed = f"{arguments.seconds / middle:11.1f} {cpu:6.3f} {peak:5.0f} MiB"
                print(f"{name:8} {job:7} {engine:15} {speed}  {agreement}")
            both = {engine: arguments.seconds / seconds for engine, seconds in total.items()}
            ratio = both[OURS] / both[REFERENCE]
            print(f"{name:8} both    {OURS:15} {both[OURS]:11.1f}  {ratio:.2f}x of {REFERENCE} ({both[REFERENCE]:.1f})")


if __name__ == "__main__":
    main()
