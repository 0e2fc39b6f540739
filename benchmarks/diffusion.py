"""Time and memory of one step of a UNet and of decoding a picture, ours next to diffusers on PyTorch and
stable-diffusion.cpp.

    python benchmarks/diffusion.py                    # all cases
    python benchmarks/diffusion.py unet-q8_0          # one

Cases are the UNet of Stable Diffusion 1.5 on latents of 64 x 64, with weights in f32, f16 and Q8_0, and its
autoencoder on the latents of a picture of 512 x 512; weights are random. PyTorch computes in f32 with channels last;
stable-diffusion.cpp draws two steps without guidance, of which the second one counts, or the time after the last step.
Each engine runs in a process of its own, once before the timed rounds, in which the engines take turns. A row gives an
engine's median, its time relative to ours, the largest memory of its process, and how far its result lies from that of
PyTorch in f32, relative to the largest number there.
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

OURS, TORCH, SDCPP = "candle-convert", "diffusers", "stable-diffusion.cpp"
CASES = ("unet-f32", "unet-f16", "unet-q8_0", "vae-decode")
SIZE, PROMPT = 512, "a red fox in snow"
UNET = {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8}
VAE = {
    "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "sample_size": SIZE,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip
TEXT = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "projection_dim": 768,
}  # fmt: skip
BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False}


def written(folder):
    """Write the model as a directory in f16, as a single file, and with a UNet in f32 and in Q8_0."""
    import candle_convert as cc
    import diffusers
    import torch
    import transformers

    torch.manual_seed(0)
    parts = {
        "unet": diffusers.UNet2DConditionModel(**UNET),
        "vae": diffusers.AutoencoderKL(**VAE),
        "text_encoder": transformers.CLIPTextModel(transformers.CLIPTextConfig(**TEXT)),
        "scheduler": diffusers.DDIMScheduler(**BETAS),
    }
    index = {"_class_name": "StableDiffusionPipeline", "scheduler": ["diffusers", "DDIMScheduler"]}
    for name, part in parts.items():
        part = part if name == "scheduler" else part.half()
        part.save_pretrained(f"{folder}/sd/{name}")
        index[name] = [type(part).__module__.partition(".")[0], type(part).__name__]
    Path(folder, "sd/model_index.json").write_text(json.dumps(index))
    cc.convert(f"{folder}/sd", f"{folder}/sd.safetensors")
    cc.convert(f"{folder}/sd/unet", f"{folder}/unet-f32", to="safetensors", dtype="f32")
    Path(folder, "unet-q8_0").mkdir()
    cc.quantize(f"{folder}/sd/unet", f"{folder}/unet-q8_0/unet.gguf", "q8_0")
    Path(folder, "unet-q8_0/config.json").write_bytes(Path(folder, "sd/unet/config.json").read_bytes())


def arrays(case):
    """The inputs of a case."""
    random = np.random.default_rng(0)
    latents = random.standard_normal((1, 4, SIZE // 8, SIZE // 8), np.float32)
    if case == "vae-decode":
        return {"latents": latents}
    text = random.standard_normal((1, 77, 768), np.float32)
    return {"sample": latents, "timestep": np.float32(500), "encoder_hidden_states": text}


def runner(engine, case, folder, threads):
    """A function that runs a case once and returns its seconds and an array, None where the engine gives none."""
    fed = arrays(case)
    if engine == SDCPP:
        return sdcpp(case, folder, threads)
    compute = (ours if engine == OURS else pytorch)(case, folder, threads)

    def once():
        start = time.perf_counter()
        result = compute(fed)
        return time.perf_counter() - start, np.asarray(result)

    return once


def ours(case, folder, threads):
    """A function from arrays to an array."""
    import candle_convert as cc

    if case == "vae-decode":
        model = cc.models.load(f"{folder}/sd/vae", threads=threads)
        return lambda fed: model.decode(fed["latents"])["sample"]
    part = "sd/unet" if case == "unet-f16" else case
    model = cc.models.load(f"{folder}/{part}", threads=threads)
    return lambda fed: model(**fed)["sample"]


def pytorch(case, folder, threads):
    """As `ours`, of diffusers; every case in f32."""
    import diffusers
    import torch

    torch.set_num_threads(threads)
    kind, part = (diffusers.AutoencoderKL, "vae") if case == "vae-decode" else (diffusers.UNet2DConditionModel, "unet")
    model = kind.from_pretrained(f"{folder}/sd/{part}", torch_dtype=torch.float32).eval()
    model = model.to(memory_format=torch.channels_last)

    def compute(fed):
        given = {name: torch.as_tensor(array) for name, array in fed.items()}
        with torch.inference_mode():
            found = model.decode(given["latents"]) if case == "vae-decode" else model(**given)
        return found.sample.numpy()

    return compute


def sdcpp(case, folder, threads):
    """A function that draws two steps and returns the seconds of the second one, or of decoding."""
    from cyllama import sd

    sd.ggml_backend_load_all()
    params = sd.SDContextParams(model_path=f"{folder}/sd.safetensors", n_threads=threads)
    params.wtype = {"unet-f32": sd.SDType.F32, "unet-q8_0": sd.SDType.Q8_0}.get(case, sd.SDType.F16)
    context, ticks = sd.SDContext(params), []
    sd.set_progress_callback(lambda *progress: ticks.append((progress, time.perf_counter())))

    def once():
        ticks.clear()
        context.generate(
            PROMPT, width=SIZE, height=SIZE, seed=1, sample_steps=2, cfg_scale=1.0, sample_method=sd.SampleMethod.EULER
        )
        end = time.perf_counter()
        steps = [moment for progress, moment in ticks if progress[1] == 2 and progress[0] > 0][:2]
        return (end - steps[-1] if case == "vae-decode" else steps[1] - steps[0]), None

    return once


def serve(engine, case, folder, threads):
    """Run a case for each line of standard input; print seconds and peak bytes."""
    once = runner(engine, case, folder, threads)
    _, result = once()
    if result is not None:
        np.save(f"{folder}/{engine}-{case}.npy", result)
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        seconds, _ = once()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({"seconds": seconds, "peak": int(status["VmHWM"].split()[0]) * 1024}), flush=True)


def compare(case, folder, arguments):
    """Print a row for each engine of a case."""
    processes = {}
    for engine in arguments.engines:
        command = [sys.executable, __file__, "--serve", engine, case, folder, "--threads", str(arguments.threads)]
        processes[engine] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    for engine, process in processes.items():
        if not process.stdout.readline():
            raise SystemExit(f"{engine} failed; run it with: {' '.join(process.args)}")
    found = timed_rounds(processes, arguments.rounds)
    seconds = {engine: statistics.median(run["seconds"] for run in runs) for engine, runs in found.items()}
    reference = Path(folder, f"{TORCH}-{case}.npy")
    for engine, runs in found.items():
        result, difference = Path(folder, f"{engine}-{case}.npy"), "-"
        if result.exists() and reference.exists():
            expected = np.load(reference)
            difference = f"{np.abs(np.load(result) - expected).max() / np.abs(expected).max():.1e}"
        peak, ratio = max(run["peak"] for run in runs) / 1e6, seconds[engine] / seconds[OURS]
        print(f"| {case} | {engine} | {seconds[engine]:.2f} | {ratio:.2f} | {peak:.0f} | {difference} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--engines", nargs="+", default=[OURS, TORCH, SDCPP], choices=[OURS, TORCH, SDCPP])
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of all engines")
    parser.add_argument("--folder", help="where models are written and found again (default: a temporary folder)")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve, arguments.threads)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        if not Path(folder, "unet-q8_0/config.json").exists():
            written(folder)
        print("| case | engine | s | engine's time / ours | peak MB | difference |\n|---|---|---|---|---|---|")
        for case in arguments.cases or CASES:
            compare(case, folder, arguments)


if __name__ == "__main__":
    main()
