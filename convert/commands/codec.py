"""``codec``: encodes audio to the tokens of a neural codec and decodes them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..cli import option_values, output_path, shared_options
from ..cli.number import Number
from ..console.output import current
from ..console.status_line import busy

if TYPE_CHECKING:
    from ...models.pipelines.audio.codec.codec_model import CodecModel

GROUP = "Run"
EXAMPLES = {
    "": (
        "encode encodec_24khz voice.wav voice.npz --bandwidth 6",
        "decode encodec_24khz voice.npz again.wav",
        "encode dac_44khz 'songs/*.flac' codes/ --codebooks 4",
    ),
    "encode": (
        "encode encodec_24khz voice.wav voice.npz --bandwidth 6",
        "encode mimi.gguf talk.mp3 talk.npz --codebooks 8",
        "encode dac_44khz 'songs/*.flac' codes/",
    ),
    "decode": (
        "decode encodec_24khz voice.npz voice.wav",
        "decode snac.gguf voice.npz voice.flac --force",
        "decode dac_44khz codes/ songs/ --format ogg",
    ),
}
NO_CODEC = ("E-ONNX-TASK", "E-MODEL-VERB")
"""Codes of errors that say that a model is for another use."""
SOUNDS = ("wav", "flac", "ogg", "mp3")


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert codec {line}" for line in EXAMPLES[command])])


@click.group("codec", epilog=_examples(""))
def COMMAND() -> None:  # noqa: N802
    """Encode audio to codec tokens and decode them back.

    MODEL is EnCodec, DAC, SNAC or Mimi.
    """


def _command(name: str, metavar: str, *options: Any) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A command MODEL IN... OUT with its own options and those of models."""

    def made(function: Callable[..., int]) -> Callable[..., int]:
        force = click.option("-f", "--force", is_flag=True, help="Overwrite existing outputs.")
        running = (shared_options.RUNNING, shared_options.PROGRESS, shared_options.DEVICE, shared_options.READING)
        named = output_path.output(shared_options.options((*options, force), *running)(function))
        inputs = click.argument("inputs", metavar=metavar, nargs=-1, required=True, type=shared_options.PATH)
        model = click.argument("model", metavar="MODEL", type=shared_options.PATH)
        return COMMAND.command(name, cls=output_path.Writing, epilog=_examples(name))(model(inputs(named)))

    return made


@_command(
    "encode",
    "FILE...",
    click.option(
        "--bandwidth",
        type=Number(0, min_open=True),
        metavar="KBPS",
        help="Target bitrate: use as many codebooks as fit (default: all).",
    ),
    click.option("--codebooks", type=click.IntRange(1), metavar="N", help="Number of codebooks (default: all)."),
)
def encode(model: str, inputs: tuple[str, ...], output: str, **values: Any) -> int:
    """Encode audio to codec tokens.

    FILE is an audio file of any sample rate and length, a folder, a glob pattern, or - for standard input; OUT is an
    .npz file, or an output folder for several inputs. Long audio is encoded in overlapping windows: the tokens equal
    those of one pass, and memory is bounded.
    """
    from ..console.atomic_replace import replacing
    from ..sounds.codes_file import SUFFIX, write_codes
    from ..sounds.output_files import output_files
    from ..sounds.sound_inputs import sound_at, sounds_of

    given = sounds_of(inputs)
    paths = output_files(given, output, SUFFIX, force=values["force"])
    found: CodecModel = _loaded("encode", model, values)
    chosen = {"bandwidth": values["bandwidth"], "num_quantizers": values["codebooks"]}
    count = found.quantizers(**chosen)
    rate = found.bandwidths[0 if found.multiscale else count - 1]

    def encoded(path: str, told: Callable[[float, float | None], None]) -> dict[str, Any]:
        codes = found.encode_sound(sound_at(path), progress=told, **chosen)
        with replacing(paths[path], force=values["force"]) as file:
            write_codes(file, codes, found)
        seconds = (codes.length or 0) / found.rate
        current().say(f"✓ {paths[path]}  {seconds:.1f} s in {counted(count, 'codebook')} · {rate:.2f} kbit/s")
        return {"output": paths[path], "seconds": seconds, "rate": found.rate, "codebooks": count, "kbps": rate}

    code = _each(model, given, "encoding", encoded, values)
    if code == 0:
        current().next_step("codec", "decode", model, output, "decoded/" if len(given) > 1 else "decoded.wav")
    return code


@_command(
    "decode",
    "FILE...",
    click.option(
        "--format", "kind", type=click.Choice(SOUNDS), help="Audio format in an output folder (default: wav)."
    ),
)
def decode(model: str, inputs: tuple[str, ...], output: str, **values: Any) -> int:
    """Decode codec tokens to audio.

    FILE is an .npz file from `codec encode` with the same model, or a folder of them; OUT is a .wav, .flac, .ogg or
    .mp3 file, or an output folder for several inputs.
    """
    from ..run.input_files import files_of
    from ..sounds.codes_file import SUFFIX, read_codes
    from ..sounds.output_files import output_files
    from ..sounds.write_sound import check_sound_suffix, write_sound_blocks

    given = files_of(inputs, {SUFFIX}, "E-CODES-NONE", "codes")
    suffix = f".{values['kind'] or 'wav'}"
    paths = output_files(given, output, suffix, force=values["force"])
    for path in paths.values():
        check_sound_suffix(path)
    found: CodecModel = _loaded("decode", model, values)

    def decoded(path: str, told: Callable[[float, float | None], None]) -> dict[str, Any]:
        codes = read_codes(path, found)
        made = 0

        def blocks() -> Any:
            nonlocal made
            for block in found.decoded_blocks(codes):
                made += block.shape[2]
                told(made / found.rate, None if codes.length is None else codes.length / found.rate)
                yield block[0]

        write_sound_blocks(paths[path], blocks(), found.rate, found.channels, force=values["force"])
        current().say(f"✓ {paths[path]}  {made / found.rate:.1f} s of {found.rate:,} Hz")
        return {"output": paths[path], "seconds": made / found.rate, "rate": found.rate}

    return _each(model, given, "decoding", decoded, values)


def _loaded(verb: str, model: str, values: dict[str, Any]) -> CodecModel:
    """The model. UsageError for one that is not a codec."""
    try:
        found: CodecModel = option_values.load_for(verb, model, values)
    except UsageError as error:
        if error.code not in NO_CODEC:
            raise
        why = "not an audio codec"
        raise UsageError("E-CODEC-MODEL", model, why, expected="EnCodec, DAC, SNAC or Mimi") from error
    return found


def _each(
    model: str,
    given: list[str],
    phase: str,
    compute: Callable[[str, Callable[[float, float | None], None]], dict[str, Any]],
    values: dict[str, Any],
) -> int:
    """Convert every file; a damaged one among several is left out. The exit code is that of the worst error."""
    from ..run.counter import Counter
    from ..run.readable_files import over_readable

    shown = option_values.progress(values)

    def converted(path: str) -> dict[str, Any]:
        counter = Counter(shown, phase, "seconds")

        def told(done: float, total: float | None) -> None:
            if total is not None:
                counter(round(done), max(round(total), round(done)))

        return {"input": path, **compute(path, told)}

    readable = over_readable(given, 1, lambda some: [converted(path) for path in some], lambda done, total: None)
    busy().stop()
    facts = {"inputs": [model], "results": readable.results, "warnings": []}
    current().emit({**facts, **readable.errors_json(given)}, ok=not readable.errors)
    return readable.exit_code
