"""``finetune``: fine-tunes all weights of a model, or LoRA adapters, on training data."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current, notes_json
from ..console.status_line import busy

if TYPE_CHECKING:
    from ..finetune.session import Session

GROUP = "Train"
EPILOG = """\b
Examples
  candle-convert finetune qwen_dir -d chats.jsonl -o adapter/ --lora 16
  candle-convert finetune model.gguf -d pairs.jsonl -o out/ --lora 8 --merge
  candle-convert finetune bert_dir -d labeled.csv -o classifier/ --epochs 5
"""
LINES = 20
"""Lines with the loss that are shown of a run, at most."""


def _next_command(session: Session, model: str, output: str) -> tuple[str, ...]:
    """Words of the command that uses what was trained."""
    if session.wanted.rank and not session.wanted.merge and session.labels is None:
        if not os.path.isdir(model):
            return "inspect", output
        return "convert", model, f"{output.rstrip('/')}-merged", "--to", "safetensors", "--lora", output
    if session.pairs:
        return "predict", output, "image.jpg", "--labels", "a cat,a dog"
    if session.labels is None:
        picture = ("--image", "image.jpg") if session.answers else ()
        return "generate", output, "-p", "Hello", *picture
    return "predict", output, "Hello" if session.tokenizer is not None else "image.jpg"


def _targets(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in (value or "").split(",") if name.strip())
    return names or None


@click.command("finetune", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option(
    "-d", "--data", required=True, metavar="DATA", type=shared_options.PATH, help="Training data; formats above."
)
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
@click.option(
    "--lora",
    "rank",
    type=click.IntRange(1, 1024),
    metavar="RANK",
    help="Train LoRA adapters of this rank; freeze the rest.",
)
@click.option(
    "--lora-alpha", "alpha", type=Number(0, min_open=True), metavar="N", help="LoRA alpha (default: twice the rank)."
)
@click.option(
    "--lora-dropout", "dropout", type=Number(0, 0.99), default=0.0, metavar="P", help="LoRA dropout (default 0)."
)
@click.option("--targets", callback=_targets, metavar="NAME,...", help="Layers to adapt: q_proj,v_proj (default: all).")
@click.option("--merge", is_flag=True, help="Merge the adapter into OUT; keep it in OUT/adapter.")
@click.option("--epochs", type=click.IntRange(1), default=3, metavar="N", help="Number of epochs (default 3).")
@click.option(
    "--learning-rate", "rate", type=Number(0), metavar="R", help="Peak learning rate (default 2e-5; 2e-4 with --lora)."
)
@click.option(
    "--batch-size", "size", type=click.IntRange(1), default=8, metavar="N", help="Examples per step (default 8)."
)
@click.option(
    "--max-length", "length", type=click.IntRange(2), metavar="N", help="Maximum sequence length (default 512)."
)
@click.option(
    "--eval-split",
    "share",
    type=Number(0, 0.9),
    default=0.1,
    metavar="P",
    help="Fraction of examples held out for evaluation (default 0.1); 0 trains and evaluates on all.",
)
@click.option("--new-head", is_flag=True, help="Replace the classification head to match the labels.")
@shared_options.PREPROCESSOR
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Random seed (default 0).")
@click.option(
    "--dtype", metavar="DTYPE", type=shared_options.DTYPE, help="Dtype of the saved weights (default: MODEL's)."
)
@click.option(
    "--checkpoint-every", "every", type=click.IntRange(1), metavar="N", help="Save OUT.checkpoint every N steps."
)
@click.option("--resume", is_flag=True, help="Resume from OUT.checkpoint.")
@click.option("-f", "--force", is_flag=True, help="Overwrite an existing output.")
@shared_options.options(shared_options.RUNNING[1:], shared_options.PROGRESS, shared_options.READING)
def COMMAND(model: str, data: str, output: str, **values: Any) -> None:  # noqa: N802
    """Fine-tune a model on training data.

    DATA is a .jsonl, .json, .csv or .tsv file, whose keys select the task: "messages", "conversations" (ShareGPT),
    "instruction" and "output" (Alpaca), "prompt" and "completion", or "text" for language models; "text" and "label"
    (and "text_pair") for text encoders; "image" and "label" for image models; "image" with "text" for CLIP and its
    relatives; "image" with "messages", "prompt" and "completion", or "text" for vision-language models (--lora only). A
    .txt file has one text per line; a folder has images in one folder per label, prepared as MODEL or --preprocessor
    says.

    Without --lora all weights are trained, and OUT is a model directory. With --lora OUT is a PEFT adapter, which
    `convert --lora OUT` or --merge merges; quantized weights of MODEL stay quantized during training. Classifiers are
    saved whole. The loss on held-out examples is measured before and after.

    An interrupted run saves OUT.checkpoint; repeat the command with --resume to continue. It is removed once OUT is
    written.
    """
    from ..console.atomic_replace import refuse_existing, refuse_unwritable
    from ..console.stdio import refuse_stream
    from ..console.warned import warned
    from ..finetune.checkpoint import Checkpoint
    from ..finetune.rows import read_rows
    from ..finetune.session import Session, Wanted

    refuse_stream(output, "a model directory")
    refuse_existing(output, force=values["force"])
    refuse_unwritable(output)
    rows = read_rows(data)
    names = {field.name for field in dataclasses.fields(Wanted)} - {"rank"}
    wanted = Wanted(rank=values["rank"] or 0, **{name: values[name] for name in names})
    progress = option_values.progress(values)
    out = current()
    with warned(UserWarning, "W-TRAIN") as notes:
        session = Session(option_values.open_input(model, values, whole=True), model, rows, wanted)
        training, (trained, every) = session.training, session.parameters
        out.say(f" model    {session.title} · {trained:,} of {counted(every, 'parameter')} are trained")
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
    out.next_step(*_next_command(session, model, output))
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
