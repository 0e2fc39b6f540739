"""How close the pictures are that stable-diffusion.cpp and we draw from the same file.

    python benchmarks/same_picture.py
    python benchmarks/same_picture.py --steps 8 --size 256

Files are a model of Stable Diffusion 1.5's shapes with random weights, as diffusers' directory made one file: in f16
(safetensors) and with linear layers in Q8_0 (GGUF). Both programs draw with Euler's method at uniform timesteps,
without guidance, from PyTorch's noise. A row gives the peak signal-to-noise ratio of our picture to theirs; a picture
whose pixels all differ by 1 of 255 has 48.1 dB. stable-diffusion.cpp multiplies convolutions in f16, and rounds the
activations of Q8_0 layers to 8 bits.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

import numpy as np  # noqa: E402

sys.path.append(str(HERE))
from diffusion import PROMPT, written  # noqa: E402

SEED = 7
FILES = ("sd.safetensors", "sd-q8_0.gguf")


def ours(path, arguments):
    """Our picture, u8 [height, width, 3]."""
    import candle_convert as cc

    size, model = (arguments.size,) * 2, cc.models.load(path, threads=arguments.threads)
    drawn = model.draw(
        PROMPT, seed=SEED, steps=arguments.steps, guidance=1.0, size=size, scheduler="Euler Uniform", noise="torch"
    )
    return np.asarray(drawn)


def theirs(path, arguments):
    """stable-diffusion.cpp's picture, u8 [height, width, 3]."""
    from cyllama import sd

    sd.ggml_backend_load_all()
    params = sd.SDContextParams(model_path=str(path), n_threads=arguments.threads)
    params.rng_type = params.sampler_rng_type = sd.RngType.CPU
    if path.suffix == ".safetensors":
        params.wtype = sd.SDType.F32
    (drawn,) = sd.SDContext(params).generate(
        PROMPT, width=arguments.size, height=arguments.size, seed=SEED, sample_steps=arguments.steps, cfg_scale=1.0,
        sample_method=sd.SampleMethod.EULER, scheduler=sd.Scheduler.DISCRETE,
    )  # fmt: skip
    return np.asarray(drawn.to_numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="width and height in pixels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="where models are written and found again (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        if not (folder / "unet-q8_0/config.json").exists():
            written(folder)
        if not (folder / FILES[1]).exists():
            import candle_convert as cc

            cc.quantize(folder / FILES[0], folder / FILES[1], "q8_0")
        print("| file | PSNR, dB |\n|---|---|")
        for name in FILES:
            found, expected = (draw(folder / name, arguments).astype(np.float64) for draw in (ours, theirs))
            print(f"| {name} | {10 * np.log10(255**2 / np.mean((found - expected) ** 2)):.1f} |", flush=True)


if __name__ == "__main__":
    main()
