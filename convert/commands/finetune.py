"""``finetune``: trains a model on rows of data, wholly or with adapters."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from ...runtime.base.units import counted
from ..cli import shared_options
from ..cli.number import Number
from ..console.output import current, notes_json
from ..console.status_line import busy

EPILOG = """\b
Examples
  candle-convert finetune qwen_dir -d chats.jsonl -o adapter/ --lora 16
  candle-convert finetune model.gguf -d pairs.jsonl -o out/ --lora 8 --merge
  candle-convert finetune bert_dir -d labeled.csv -o classifier/ --epochs 5
"""
LINES = 20
"""Lines with the loss that are shown of a run, at most."""


def _targets(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in (value or "").split(",") if name.strip())
    return names or None


@click.command("finetune", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option("-d", "--data", required=True, metavar="DATA", type=shared_options.PATH, help="Rows to learn; see above.")
@click.option(
    "-o",
    "--output",
    "--outfile",
    "output",
    required=True,
    metavar="OUT",
    type=shared_options.PATH,
    help="Folder for the model or the adapter.",
)
@click.option("--lora", "rank", type=click.IntRange(1, 1024), metavar="RANK", help="Train adapters of this rank alone.")
@click.option(
    "--lora-alpha",
    "alpha",
    type=Number(0, min_open=True),
    metavar="N",
    help="Weight of the adapters (default: twice the rank).",
)
@click.option("--lora-dropout", "dropout", type=Number(0, 0.99), default=0.0, metavar="P", help="Dropout of adapters.")
@click.option(
    "--targets", callback=_targets, metavar="NAME,...", help="Layers with adapters: q_proj,v_proj (default: all)."
)
@click.option("--merge", is_flag=True, help="Write the model with the adapter merged, and the adapter in OUT/adapter.")
@click.option(
    "--epochs", type=click.IntRange(1), default=3, metavar="N", help="How often all rows are seen (default 3)."
)
@click.option(
    "--learning-rate", "rate", type=Number(0), metavar="R", help="Highest rate (default 2e-5, 2e-4 for adapters)."
)
@click.option(
    "--batch-size", "size", type=click.IntRange(1), default=8, metavar="N", help="Rows of a step (default 8)."
)
@click.option("--max-length", "length", type=click.IntRange(2), metavar="N", help="Tokens of a row (default 512).")
@click.option(
    "--eval-split",
    "share",
    type=Number(0, 0.9),
    default=0.1,
    metavar="P",
    help="Share of the rows to evaluate with (default 0.1); 0 for all, which are trained with too.",
)
@click.option("--new-head", is_flag=True, help="Give a classifier a new head for the labels of the data.")
@shared_options.PREPROCESSOR
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of all random choices (default 0).")
@click.option(
    "--dtype", metavar="DTYPE", type=shared_options.DTYPE, help="Dtype of the weights of OUT (default: MODEL's)."
)
@click.option(
    "--checkpoint-every",
    "every",
    type=click.IntRange(1),
    metavar="N",
    help="Keep the state of the run in OUT.checkpoint after every N steps.",
)
@click.option("--resume", is_flag=True, help="Continue an interrupted run from OUT.checkpoint.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing output.")
@shared_options.options(shared_options.RUNNING[1:], shared_options.PROGRESS, shared_options.READING)
def COMMAND(model: str, data: str, output: str, **values: Any) -> None:  # noqa: N802
    """Train a model on rows of data.

    DATA is a file of JSON lines (or .json, .csv, .tsv), whose keys say what is learned: "messages" (a chat), "prompt"
    and "completion", or "text" for language models; "text" and "label" (and "text_pair") for text encoders; "image" and
    "label" for image models. A .txt file has one text a line, a folder has pictures in a folder for each label.
    Pictures are prepared as MODEL says, or as --preprocessor says, which is copied to OUT.

    Without --lora all weights are trained, and OUT is a model directory. With it OUT has the adapter in PEFT's files,
    which convert merges into a model directory (--lora OUT) and --merge into MODEL of any format; quantized weights
    of MODEL stay as they are in training. Classifiers are always written as a whole. The loss is measured on
    held-back rows before and after.

    A run that is interrupted keeps its state in OUT.checkpoint, and the same command with --resume goes on from it;
    --checkpoint-every keeps it against a crash as well. The file is removed once OUT is written.
    """
    from ..console.atomic_replace import refuse_existing, refuse_unwritable
    from ..console.stdio import refuse_stream
    from ..finetune.checkpoint import Checkpoint
    from ..finetune.rows import read_rows
    from ..finetune.session import Session, Wanted
    from ..finetune.warned import warned_notes

    refuse_stream(output, "a model directory")
    refuse_existing(output, force=values["force"])
    refuse_unwritable(output)
    rows = read_rows(data)
    names = {field.name for field in dataclasses.fields(Wanted)} - {"rank"}
    wanted = Wanted(rank=values["rank"] or 0, **{name: values[name] for name in names})
    progress = shared_options.progress(values)
    out = current()
    with warned_notes() as notes:
        session = Session(shared_options.open_input(model, values), model, rows, wanted)
        training, (trained, every) = session.training, session.parameters
        out.say(f" model    {session.title} · {trained:,} of {every:,} parameters are trained")
        learned, steps = counted(len(session.learned), "row"), counted(training.steps, "step")
        out.say(f" data     {learned} to learn, {len(session.held):,} to evaluate · {steps} of {wanted.size}")
        before = session.measure()
        out.say(f" before   {before}")
        checkpoint = Checkpoint(output, session, before)
        if values["resume"]:
            out.say(f" resumed  after {counted(checkpoint.load(), 'step')}")
        out.resumes()
        progress.phase("training")
        progress.start(training.steps, skipped=len(training.losses), unit="steps")
        shown = 0
        with checkpoint.kept():
            for step, epoch, loss in training.run():
                progress.advance(1)
                if step * LINES // training.steps > shown or step == training.steps:
                    shown = step * LINES // training.steps
                    place = f"{step:>{len(str(training.steps))}} of {training.steps}"
                    out.say(f" step     {place} · epoch {epoch} · loss {loss:.4f}")
                if values["every"] is not None and step % values["every"] == 0:
                    checkpoint.save()
            progress.finish()
            after = session.measure()
            out.say(f" after    {after}")
            paths = session.write(output)
        checkpoint.remove()
    busy().stop()
    out.warn(notes)
    out.say(f"✓ {output}")
    out.emit(
        {
            "inputs": [model],
            "data": data,
            "outputs": [{"path": path} for path in paths],
            "parameters": {"trained": trained, "all": every},
            "rows": {"learned": len(session.learned), "evaluated": len(session.held)},
            "steps": training.steps,
            "losses": training.losses,
            "before": before.to_json(),
            "after": after.to_json(),
            "labels": session.labels,
            "warnings": notes_json(notes),
        }
    )
