"""``speak``: generates speech or music from text."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current
from ..console.status_line import busy

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert speak musicgen_dir -p "a calm piano" -o piano.wav
  candle-convert speak musicgen.gguf -p "80s rock" -o rock.flac --seed 1
  candle-convert speak parler_dir -p Hello --describe "A low voice" -o a.wav
"""
DRAWN = ("guidance", "max_seconds", "temperature", "top_k")
"""Options that are passed on as they are."""
VOICE = {"description": "describe", "speaker": "speaker"}
"""Names in Python of the options that describe the voice."""


@click.command("speak", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option(
    "-p", "--prompt", required=True, metavar="TEXT", help="Text to speak, or description of the music; - reads stdin."
)
@click.option("--describe", metavar="TEXT", help="Description of the voice (Parler-TTS).")
@click.option("--speaker", metavar="N|FILE", help="Speaker number, or recording of the voice to clone.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    type=shared_options.PATH,
    help="Output file: .wav, .flac, .ogg or .mp3.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random seed (default: random).")
@click.option(
    "--max-seconds", type=Number(0, min_open=True), metavar="X", help="Maximum duration (default: the model's)."
)
@click.option("--guidance", type=Number(0), metavar="X", help="Classifier-free guidance scale (default: the model's).")
@click.option("--temperature", type=Number(0), metavar="X", help="Sampling temperature; 0 is greedy.")
@click.option("--top-k", type=click.IntRange(0), metavar="N", help="Sample from the N most probable tokens; 0 for all.")
@click.option("--force", is_flag=True, help="Overwrite an existing output.")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Generate speech or music from text.

    MODEL is a MusicGen, Parler-TTS or CSM directory with its tokenizer, a GGUF file of one of them, or a MetaVoice
    folder (first_stage.pt, second_stage.pt, speaker_encoder.pt, encodec/). MetaVoice clones the voice of
    --speaker voice.wav and decodes with EnCodec, without multiband diffusion and DeepFilterNet. Sampling defaults come
    from generation_config.json; the same seed gives the same audio.
    """
    from ..console.atomic_replace import refuse_existing
    from ..console.stdio import STREAM
    from ..run.counter import Counter
    from ..sounds.write_sound import check_sound_suffix, write_sound

    output, force = values["output"], values["force"]
    check_sound_suffix(output)
    refuse_existing(output, force=force)
    text = sys.stdin.read() if values["prompt"] == STREAM else values["prompt"]
    options = {name: values[name] for name in DRAWN if values[name] is not None}
    options |= {name: values[option] for name, option in VOICE.items() if values[option] is not None}
    found = option_values.load_for("speak", model, values)
    counter = Counter(option_values.progress(values), "speaking", "frames")
    samples, rate = found.speak(text, seed=values["seed"], on_progress=counter, **options)
    busy().stop()
    write_sound(output, samples.T, rate, force=force)
    seconds = len(samples) / rate
    out = current()
    if output != STREAM:
        out.say(f"✓ {output}  {seconds:.1f} s of {rate:,} Hz")
    out.emit({"inputs": [model], "outputs": [output], "seconds": seconds, "rate": rate, "warnings": []})
