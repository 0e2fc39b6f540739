"""``transcribe``: text of what is said in audio."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ..cli import shared_options
from ..cli.number import Number
from ..console.output import current
from ..console.status_line import busy

if TYPE_CHECKING:
    from ...models.pipelines.audio.speech_model import SpeechModel
    from ...models.pipelines.audio.transcription.segments import Segment, Transcript

EPILOG = """\b
Examples
  candle-convert transcribe whisper_dir talk.mp3
  candle-convert transcribe whisper_dir de.wav --language de --task translate
  candle-convert transcribe whisper_dir 'calls/*.ogg' -o out/ --vad vad.onnx
"""
FORMATS = ("txt", "srt", "vtt", "tsv", "json")
STATED = (
    "language", "task", "beams", "best_of", "temperature", "compression_ratio_threshold", "logprob_threshold",
    "no_speech_threshold", "condition_on_previous_text", "initial_prompt", "seed",
)  # fmt: skip
"""Options that are passed on as they are."""


@click.command("transcribe", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.argument("inputs", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-l", "--language", metavar="CODE", help="Language of the audio, such as de or german (default: detected)."
)
@click.option(
    "--task", type=click.Choice(["transcribe", "translate"]), help="transcribe (default), or translate into English."
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    metavar="OUT",
    type=shared_options.PATH,
    help="File, or for several inputs a folder of files.",
)
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="txt, srt, vtt, tsv or json (default: by the suffix of OUT)."
)
@click.option("--beams", type=click.IntRange(1), metavar="N", help="Hypotheses of the beam search (default 5).")
@click.option(
    "--best-of", type=click.IntRange(1), metavar="N", help="Texts to choose from at temperatures above 0 (default 5)."
)
@click.option(
    "--temperature",
    type=Number(0),
    metavar="X",
    help="The only temperature; by default 0, then up to 1 until the text is good enough.",
)
@click.option(
    "--compression-ratio-threshold",
    type=float,
    metavar="X",
    help="A text that zlib compresses more is tried again (default 2.4).",
)
@click.option(
    "--logprob-threshold",
    type=float,
    metavar="X",
    help="A text of a lower mean log probability is tried again (default -1).",
)
@click.option(
    "--no-speech-threshold",
    type=float,
    metavar="X",
    help="Windows that are silent with a higher probability have no text (default 0.6).",
)
@click.option(
    "--word-timestamps", is_flag=True, help="Times of every word, in JSON; segments begin and end with words."
)
@click.option(
    "--vad",
    metavar="FILE",
    type=shared_options.PATH,
    help="Model of Silero VAD: only what it takes for speech is heard.",
)
@click.option("--initial-prompt", metavar="TEXT", help="Text before the first window: names, spelling, style.")
@click.option(
    "--condition-on-previous-text/--no-condition-on-previous-text",
    default=None,
    help="Whether the text of a window is the prompt of the next one (default: it is).",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random seed at temperatures above 0 (default 0).")
@click.option("--force", is_flag=True, help="Replace existing outputs.")
@shared_options.options(shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Write what is said in audio.

    FILE is an audio file of any rate and length, a folder or a pattern of names, or - for standard input. MODEL is
    Whisper; Moonshine, whose options are --beams and --vad; or a model that tells a letter for each frame (wav2vec 2.0,
    HuBERT, WavLM), whose options are --word-timestamps and --vad. Audio is read in windows of 30 s; a window of Whisper
    starts where the last sentence of the one before it ended. Text is printed as it is found, a line for each segment;
    subtitles have their times.

    A damaged file among several is left out: it gets a line on standard error, and the exit code is that of its error
    at the end.
    """
    from ..run.readable_files import over_readable
    from ..sounds.sound_inputs import sounds_of

    out = current()
    given = sounds_of(inputs)
    kind, paths = _outputs(given, values)
    options = {name: values[name] for name in STATED if values[name] is not None}
    options |= {"word_timestamps": True} if values["word_timestamps"] else {}
    found = shared_options.load_for("transcribe", model, values)
    if values["vad"] is not None:
        options["vad"] = _speech_finder(values["vad"], values)

    def row(path: str) -> dict[str, Any]:
        if len(given) > 1 and not paths:
            out.say(f"{path}:")
        made = _transcribed(found, path, options, values, printing=not paths and kind == "txt")
        _write(made, path, kind, paths, force=values["force"])
        return {"input": path, **made.to_json(), **({"output": paths[path]} if paths else {})}

    readable = over_readable(given, 1, lambda some: [row(path) for path in some])
    busy().stop()
    facts = {"inputs": [model], "results": readable.results, "warnings": []}
    out.emit({**facts, **readable.errors_json(given)}, ok=not readable.errors)
    return readable.exit_code


def _speech_finder(path: str, values: dict[str, Any]) -> Any:
    """The model that finds speech."""
    from ...models.schema.audio_hyperparameters import VOICE_ACTIVITY

    found = shared_options.load_for("predict", path, values)
    if found.task != VOICE_ACTIVITY:
        raise UsageError(
            "E-SPEECH-VAD", path, "the model does not find speech", expected=VOICE_ACTIVITY, found=found.task
        )
    return found


def _outputs(given: list[str], values: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The kind of transcripts, and the path of each by that of the audio; no paths for standard output."""
    from ..sounds.output_files import output_files

    output = values["output"]
    if output is None:
        return values["kind"] or "txt", {}
    folder = len(given) > 1 or os.path.isdir(output) or output.endswith(os.sep)
    suffix = "" if folder else os.path.splitext(output)[1][1:].lower()
    kind = values["kind"] or (suffix if suffix in FORMATS else None if suffix else "txt")
    if kind is None:
        raise UsageError("E-OUT-SUFFIX", output, "the suffix names no kind of transcript", expected=", ".join(FORMATS))
    return kind, dict(output_files(given, output, f".{kind}", force=values["force"]))


def _transcribed(
    model: SpeechModel, path: str, options: Mapping[str, Any], values: dict[str, Any], *, printing: bool
) -> Transcript:
    from ..run.counter import Counter
    from ..sounds.sound_inputs import sound_at

    out = current()
    shown = printing and sys.stdout is not None and sys.stdout.isatty()
    counter = None if shown else Counter(shared_options.progress(values), "transcribing", "seconds")

    def told(done: float, total: float | None) -> None:
        if counter is not None and total is not None:
            counter(round(done), max(round(total), round(done)))

    def printed(segment: Segment) -> None:
        if printing:
            out.content(segment.text.strip())

    return model.transcribe(sound_at(path), on_segment=printed, progress=told, **options)


def _write(made: Transcript, path: str, kind: str, paths: Mapping[str, str], *, force: bool) -> None:
    """The transcript into its file, or to standard output where it is not printed yet."""
    from ..console.atomic_replace import replacing
    from ..sounds.transcript_text import KINDS

    if paths:
        with replacing(paths[path], force=force) as file:
            file.write(KINDS[kind](made).encode())
        current().say(f"✓ {paths[path]}  {made.duration:.1f} s of audio")
    elif kind != "txt":
        current().content(KINDS[kind](made), end="")
