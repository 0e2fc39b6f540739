"""``imatrix``: importance matrix of a model, computed from a text, or from sounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..cluster.parallel import pipeline_option
from ..console.output import current

if TYPE_CHECKING:
    from ..quantize.observe_importance import Observed, Piece

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert imatrix model.gguf -d calibration.txt -o imatrix.gguf
  candle-convert imatrix --in-file a.gguf --in-file b.gguf -o both.gguf
  candle-convert quantize model.gguf small.gguf IQ2_M --imatrix imatrix.gguf
"""


@click.command("imatrix", epilog=EPILOG)
@click.argument("model", metavar="[MODEL]", required=False, type=shared_options.PATH)
@click.option(
    "-d",
    "--data",
    "data",
    multiple=True,
    metavar="TEXT",
    type=shared_options.PATH,
    help="A text in UTF-8; audio for Whisper (repeatable).",
)
@click.option(
    "-o",
    "--output",
    "--outfile",
    required=True,
    metavar="OUT.gguf",
    type=shared_options.PATH,
    help="Output file of the importance matrix.",
)
@click.option(
    "--in-file",
    "earlier",
    multiple=True,
    metavar="IMATRIX",
    type=shared_options.PATH,
    help="Importance matrix to add to (repeatable).",
)
@click.option(
    "--context", type=click.IntRange(1), default=512, metavar="N", help="Tokens per chunk of the text (default 512)."
)
@click.option("--chunks", type=click.IntRange(1), metavar="N", help="Only the first N chunks, or windows.")
@click.option("--process-output", is_flag=True, help="Include output.weight.")
@click.option("--parse-special", is_flag=True, help="Parse special tokens in the text.")
@shared_options.THREADS
@shared_options.FORCE
@shared_options.options(
    shared_options.DEVICE,
    shared_options.PROGRESS,
    cluster_option.RUNS,
    pipeline_option.PIPELINE,
    shared_options.READING,
)
@cluster_option.connected
def COMMAND(  # noqa: N802
    model: str | None, output: str, data: tuple[str, ...], earlier: tuple[str, ...], **values: Any
) -> None:
    """Compute an importance matrix from data, or merge several.

    Like llama-imatrix: squared activations per input column of every matrix of the layers, summed over the text.
    quantize --imatrix weights the quantization error by them. Tensor names are those of GGUF files, for any MODEL.
    Whisper hears windows of 30 s of audio, and its decoder gets the text that it writes of them.
    Files of --in-file are added, or merged if there is no MODEL.
    """
    import numpy as np

    from ..console.atomic_replace import refuse_existing
    from ..console.stdio import refuse_stream
    from ..quantize.observe_importance import Observed
    from ..quantize.recipe.imatrix import read_sums
    from ..write.conversion_options import Options
    from ..write.pipeline import execute
    from ..write.plan import plan_graph

    if bool(model) is not bool(data) or not (data or earlier):
        raise UsageError("E-OPTION", None, "needs a MODEL with a text (-d), files to merge (--in-file), or both")
    refuse_stream(output, "an importance matrix")
    refuse_existing(output, force=values["force"])
    said_before = [read_sums(path, values["context"]) for path in earlier]
    cut, found = _observed(model, data, values) if model else ([], Observed())
    for path, sums in zip(earlier, said_before, strict=True):
        found.merge(sums, path)
    pieces = max(len(cut), int(max(counts.max() for counts in found.counts.values())) // values["context"])
    texts = [*(text for each in said_before for text in each.datasets), *data]
    made = found.graph(texts, pieces, values["context"])
    execute(plan_graph(made, Path(output), Options(to="gguf", force=values["force"])))
    unseen = {name: int((counts == 0).sum()) for name, counts in found.counts.items() if not counts.all()}
    for name, count in list(unseen.items())[:5]:
        current().say(
            f" warning  {name}: {count} of {counted(len(found.counts[name]), 'expert')} received no token; "
            "use a longer text"
        )
    merged = f", {counted(len(earlier), 'file')} added" if earlier else ""
    heard = cut and not isinstance(cut[0], np.ndarray)
    seen = counted(len(cut), "window") if heard else f"{counted(len(cut), 'piece')} of {values['context']} tokens"
    current().say(f" observed {counted(len(found.sums), 'tensor')} on {seen}{merged}")
    current().say(f"✓ {output}")
    if model:
        stem = os.path.splitext(os.path.basename(model.rstrip("/")))[0]
        current().next_step("quantize", model, f"{stem}-Q4_K_M.gguf", "Q4_K_M", "--imatrix", output)
    said = {"tensors": len(found.sums), "pieces": len(cut), "context": values["context"], "unseen": unseen}
    inputs = [*([model] if model else []), *earlier]
    current().emit({"inputs": inputs, "data": list(data), "outputs": [{"path": output}], **said})


def _observed(model: str, data: tuple[str, ...], values: dict[str, Any]) -> tuple[list[Piece], Observed]:
    """The pieces of the texts or sounds, and what the model makes of them."""
    from ...models.schema.audio_hyperparameters import SPEECH_RECOGNITION
    from ...models.tokenizer import read
    from ..evaluate.text_corpus import pieces
    from ..load.bind import bind_model
    from ..load.canonical_names import canonical_names
    from ..quantize.observe_importance import observe
    from ..quantize.observe_speech import heard_pieces

    placed = option_values.device(values)
    graph = option_values.open_input(model, values, whole=True)
    threads, progress = values["threads"], option_values.progress(values)
    found = bind_model(canonical_names(graph, text_only=True))
    cut: list[Piece]
    if found.task.name == SPEECH_RECOGNITION:
        cut = [*heard_pieces(option_values.load_for("transcribe", model, values), data, values["chunks"])]
    else:
        cut = [*pieces(read(graph), data, values["context"], values["chunks"], special=values["parse_special"])]
    stages = pipeline_option.stages(values)
    if stages is not None:
        from ..cluster.parallel.layer_stages import pipelined_observer

        cluster_option.check(values["cluster"], [model])
        opening = cluster_option.opening(model, values)
        observer = pipelined_observer(values["cluster"], opening, stages, found, values["process_output"])
        return cut, observe(found, cut, progress=progress, observer=observer)
    if values["cluster"] is not None:
        from ..cluster.text_pieces import Observation, observed_on
        from ..quantize.observe_importance import check_pieces

        check_pieces(found, cut)
        cluster_option.check(values["cluster"], [model])
        work = Observation(cluster_option.opening(model, values), values["process_output"], placed)
        return cut, observed_on(values["cluster"], work, cut, progress)
    return cut, observe(found, cut, output=values["process_output"], threads=threads, progress=progress, placed=placed)
