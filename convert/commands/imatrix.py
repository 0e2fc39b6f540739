"""``imatrix``: how much each column of a language model's matrices matters, from a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import UsageError
from ...runtime.units import counted
from .. import arguments
from ..output import current

if TYPE_CHECKING:
    import numpy as np

    from ..quantizing.observing import Observed

EPILOG = """\b
Examples
  candle-convert imatrix model.gguf -d calibration.txt -o imatrix.gguf
  candle-convert imatrix --in-file a.gguf --in-file b.gguf -o both.gguf
  candle-convert quantize model.gguf small.gguf IQ2_M --imatrix imatrix.gguf
"""


@click.command("imatrix", epilog=EPILOG)
@click.argument("model", metavar="[MODEL]", required=False, type=arguments.PATH)
@click.option("-d", "--data", "data", multiple=True, metavar="TEXT", type=arguments.PATH, help="A text in UTF-8 (repeatable).")
@click.option("-o", "--output", "--outfile", required=True, metavar="OUT.gguf", type=arguments.PATH, help="Where the importance matrix goes.")
@click.option(
    "--in-file", "earlier", multiple=True, metavar="IMATRIX", type=arguments.PATH, help="What was made before, to be added to (repeatable)."
)
@click.option("--context", type=click.IntRange(1), default=512, metavar="N", help="Tokens of a piece of the text (default 512).")
@click.option("--chunks", type=click.IntRange(1), metavar="N", help="Only the first N pieces.")
@click.option("--process-output", is_flag=True, help="The matrix that gives the logits too.")
@click.option("--parse-special", is_flag=True, help="Special tokens in the text are taken for such.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads (default: the cores).")
@click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
@arguments.options(arguments.DEVICE, arguments.PROGRESS, arguments.READING)
def COMMAND(  # noqa: N802 (the name that the registry looks for)
    model: str | None, output: str, data: tuple[str, ...], earlier: tuple[str, ...], **values: Any
) -> None:
    """Make an importance matrix from a text, or merge them.

    It is what llama-imatrix makes: for each column of each matrix of the layers the squares of what the column was multiplied with, summed over
    the text. quantize --imatrix gives more weight to columns that got more. The names are those of GGUF files, whatever file MODEL is.
    Files of --in-file are added to it, or without MODEL to one another.
    """
    from ..options import Options
    from ..pipeline import execute
    from ..plan import plan_graph
    from ..quantizing.imatrix import read_sums
    from ..quantizing.observing import Observed
    from ..replacing import refuse_existing
    from ..streams import refuse_stream

    if bool(model) is not bool(data) or not (data or earlier):
        raise UsageError("E-OPTION", None, "takes a MODEL with a text (-d), files to merge (--in-file), or both")
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
        current().say(f" warning  {name}: {count} of {len(found.counts[name])} experts got no token; give more text")
    merged = f", {counted(len(earlier), 'file')} added" if earlier else ""
    current().say(f" observed {counted(len(found.sums), 'tensor')} on {counted(len(cut), 'piece')} of {values['context']} tokens{merged}")
    current().say(f"✓ {output}")
    said = {"tensors": len(found.sums), "pieces": len(cut), "context": values["context"], "unseen": unseen}
    inputs = [*([model] if model else []), *earlier]
    current().emit({"inputs": inputs, "data": list(data), "outputs": [{"path": output}], **said})


def _observed(model: str, data: tuple[str, ...], values: dict[str, Any]) -> tuple[list[np.ndarray], Observed]:
    """The pieces of the texts, and what the model makes of them."""
    from ...models.language.tokenizer import read
    from ..modelling import modelled
    from ..quantizing.observing import observe
    from ..running.texts import pieces

    placed = arguments.device(values)
    graph = arguments.open_input(model, values)
    cut = pieces(read(graph), data, values["context"], values["chunks"], special=values["parse_special"])
    threads, progress = values["threads"], arguments.progress(values)
    return cut, observe(modelled(graph), cut, output=values["process_output"], threads=threads, progress=progress, placed=placed)
