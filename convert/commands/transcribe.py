"""``transcribe``: transcribes audio to text or subtitles."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import Error, UsageError
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..cluster import cluster_option
from ..console.output import current
from ..console.status_line import busy

if TYPE_CHECKING:
    from ...models.pipelines.audio.speech_model import SpeechModel
    from ...models.pipelines.audio.transcription.segments import Segment, Transcript
    from ..run.readable_files import Group

GROUP = "Run"
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
@click.option("-l", "--language", metavar="CODE", help="Spoken language, such as de or german (default: detected).")
@click.option(
    "--task", type=click.Choice(["transcribe", "translate"]), help="transcribe (default), or translate to English."
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    metavar="OUT",
    type=shared_options.PATH,
    help="Output file; for several inputs an output folder.",
)
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Output format (default: by the suffix of OUT).")
@click.option("--beams", type=click.IntRange(1), metavar="N", help="Beam size (default 5).")
@click.option(
    "--best-of",
    type=click.IntRange(1),
    metavar="N",
    help="Candidates when sampling at temperatures above 0 (default 5).",
)
@click.option(
    "--temperature",
    type=Number(0),
    metavar="X",
    help="Sampling temperature (default: 0, raised to 1 when decoding fails).",
)
@click.option(
    "--compression-ratio-threshold",
    type=float,
    metavar="X",
    help="Decode again if the text compresses better than X (default 2.4).",
)
@click.option(
    "--logprob-threshold",
    type=float,
    metavar="X",
    help="Decode again if the average log probability is below X (default -1).",
)
@click.option(
    "--no-speech-threshold",
    type=float,
    metavar="X",
    help="Skip windows whose no-speech probability is above X (default 0.6).",
)
@click.option("--word-timestamps", is_flag=True, help="Timestamps per word, written to JSON.")
@click.option(
    "--vad", metavar="FILE", type=shared_options.PATH, help="Silero VAD model; transcribe detected speech only."
)
@click.option("--initial-prompt", metavar="TEXT", help="Prompt of the first window: names, spelling, style.")
@click.option(
    "--condition-on-previous-text/--no-condition-on-previous-text",
    default=None,
    help="Prompt each window with the previous text (default: on).",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random seed at temperatures above 0 (default 0).")
@click.option("--force", is_flag=True, help="Overwrite existing outputs.")
@cluster_option.running
def COMMAND(model: str, inputs: tuple[str, ...], **values: Any) -> int:  # noqa: N802
    """Transcribe audio to text or subtitles.

    FILE is an audio file of any sample rate and length, a folder, a glob pattern, or - for standard input. MODEL is
    Whisper, Moonshine (options --beams and --vad) or a CTC model such as wav2vec 2.0, HuBERT or WavLM (options
    --word-timestamps and --vad). Audio is read in windows of 30 s; each segment is printed when it is decoded.

    A damaged file is reported on standard error and skipped; the exit code is then that of its error.
    """
    from ..run.readable_files import over_readable
    from ..sounds.sound_inputs import sounds_of

    out = current()
    given = sounds_of(inputs)
    kind, paths = _outputs(given, values)
    options = {name: values[name] for name in STATED if values[name] is not None}
    options |= {"word_timestamps": True} if values["word_timestamps"] else {}
    found = cluster_option.load_for("transcribe", model, values)
    if values["vad"] is not None:
        options["vad"] = _speech_finder(values["vad"], values)
    if values["cluster"] is not None:
        return _shared(found, model, given, kind, paths, options, values)

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


def _shared(
    model: Any,
    path: str,
    given: list[str],
    kind: str,
    paths: Mapping[str, str],
    options: dict[str, Any],
    values: dict[str, Any],
) -> int:
    """Transcribe files on the workers of a cluster; each transcript is written in order, as soon as it is there."""
    from ..run.counter import Counter
    from ..run.readable_files import collected
    from ..sounds.sound_inputs import sound_at

    if values["vad"] is not None:
        options |= {"vad": cluster_option.loading("predict", values["vad"], values)}
    out = current()
    counter = Counter(option_values.progress(values), "transcribing", "files") if paths else None

    def row(source: str, made: Any) -> dict[str, Any]:
        if len(given) > 1 and not paths:
            out.say(f"{source}:")
        if not paths and kind == "txt":
            for segment in made.segments:
                out.content(segment.text.strip())
        _write(made, source, kind, paths, force=values["force"])
        return {"input": source, **made.to_json(), **({"output": paths[source]} if paths else {})}

    def written(groups: Iterator[Group]) -> Iterator[Group]:
        for numbers, found in groups:
            if isinstance(found, Error):
                yield numbers, found
            else:
                yield numbers, [row(given[number], made) for number, made in zip(numbers, found, strict=True)]

    readable = collected(given, written(model.groups(given, 1, options, sound_at, counter)))
    busy().stop()
    facts = {"inputs": [path], "results": readable.results, "warnings": []}
    out.emit({**facts, **readable.errors_json(given)}, ok=not readable.errors)
    return readable.exit_code


def _speech_finder(path: str, values: dict[str, Any]) -> Any:
    """The model that finds speech."""
    from ...models.schema.audio_hyperparameters import VOICE_ACTIVITY

    found = option_values.load_for("predict", path, values)
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
    counter = None if shown else Counter(option_values.progress(values), "transcribing", "seconds")

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
