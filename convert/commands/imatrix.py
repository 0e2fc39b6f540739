"""``imatrix``: how much each column of a language model's matrices matters, from a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import arguments
from ..output import current

EPILOG = """\b
Examples
  candle-convert imatrix model.gguf -d calibration.txt -o imatrix.gguf
  candle-convert imatrix model-dir/ -d a.txt -d b.txt -o i.gguf --chunks 100
  candle-convert quantize model.gguf small.gguf IQ2_M --imatrix imatrix.gguf
"""


@click.command("imatrix", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=arguments.PATH)
@click.option("-d", "--data", "data", required=True, multiple=True, metavar="TEXT", type=arguments.PATH, help="A text in UTF-8 (repeatable).")
@click.option("-o", "--output", required=True, metavar="OUT.gguf", type=arguments.PATH, help="Where the importance matrix goes.")
@click.option("--context", type=click.IntRange(1), default=512, metavar="N", help="Tokens of a piece of the text (default 512).")
@click.option("--chunks", type=click.IntRange(1), metavar="N", help="Only the first N pieces.")
@click.option("--process-output", is_flag=True, help="The matrix that gives the logits too.")
@click.option("--parse-special", is_flag=True, help="Special tokens in the text are taken for such.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads (default: the cores).")
@click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
@arguments.options(arguments.DEVICE, arguments.PROGRESS, arguments.READING)
def COMMAND(model: str, output: str, data: tuple[str, ...], **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Make an importance matrix: run MODEL on a text.

    It is what llama-imatrix makes: for each column of each matrix of the layers the squares of what the column was multiplied with, summed over
    the text. quantize --imatrix gives more weight to columns that got more. The names are those of GGUF files, whatever file MODEL is.
    """
    from ...models.language.tokenizer import read
    from ..modelling import modelled
    from ..options import Options
    from ..pipeline import execute
    from ..plan import plan_graph
    from ..quantizing.observing import observe
    from ..replacing import refuse_existing
    from ..running.texts import pieces

    refuse_existing(output, force=values["force"])
    placed = arguments.device(values)
    graph = arguments.open_input(model, values)
    cut = pieces(read(graph), data, values["context"], values["chunks"], special=values["parse_special"])
    found = observe(
        modelled(graph), cut, output=values["process_output"], threads=values["threads"], progress=arguments.progress(values), placed=placed,
    )
    made = found.graph(data, len(cut), values["context"])
    execute(plan_graph(made, Path(output), Options(to="gguf", force=values["force"])))
    unseen = {name: int((counts == 0).sum()) for name, counts in found.counts.items() if not counts.all()}
    for name, count in list(unseen.items())[:5]:
        current().say(f" warning  {name}: {count} of {len(found.counts[name])} experts got no token; give more text")
    current().say(f" observed {len(found.sums)} tensors on {len(cut)} pieces of {values['context']} tokens")
    current().say(f"✓ {output}")
    said = {"tensors": len(found.sums), "pieces": len(cut), "context": values["context"], "unseen": unseen}
    current().emit({"inputs": [model], "data": list(data), "outputs": [{"path": output}], **said})
