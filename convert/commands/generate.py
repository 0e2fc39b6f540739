"""``generate``: text that follows a prompt."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import UsageError
from .. import arguments
from ..busy import busy
from ..output import current, notes_json

if TYPE_CHECKING:
    from ...models.language.generating import Generation, Timing
    from ...models.language.model import LanguageModel
    from ...models.language.sampling import Sampling
    from ...runtime.graph import Note

EPILOG = """\b
Examples
  candle-convert generate model.gguf -p "Once upon a time" --seed 7
  candle-convert generate model_dir -p "Why is the sky blue?" --chat
  candle-convert generate model.gguf -p Once --device cuda --gpu-layers auto
"""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last", "seed")


@click.command("generate", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=arguments.PATH)
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt; - reads standard input. Without it: a conversation.")
@click.option("--chat", is_flag=True, help="Take the prompt for a user's message, by the model's chat template.")
@click.option("--system", metavar="TEXT", help="The system's message before it, with --chat.")
@click.option("--chat-template", metavar="FILE", type=arguments.PATH, help="Another template than the model's, with --chat.")
@click.option(
    "-n", "--max-tokens", "--max-new-tokens", "--n-predict", "max_tokens", type=click.IntRange(0), metavar="N",
    help="The most tokens to generate (default 128; in a conversation as many as fit).",
)
@click.option("--temperature", "--temp", type=float, default=0.8, metavar="X", help="0 takes the likeliest token (default 0.8).")
@click.option("--top-k", type=int, default=40, metavar="N", help="Only the N likeliest tokens, 0 for all (default 40).")
@click.option("--top-p", type=float, default=0.95, metavar="X", help="Only the likeliest with this probability together (default 0.95).")
@click.option("--min-p", type=float, default=0.05, metavar="X", help="Only those of this part of the likeliest's probability (default 0.05).")
@click.option("--repeat-penalty", type=float, default=1.0, metavar="X", help="Penalty for recent tokens (default 1: none).")
@click.option("--repeat-last", "--repeat-last-n", type=int, default=64, metavar="N", help="Tokens that are lately, -1 for all (default 64).")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random seed (default: a different text every time).")
@click.option("--stop", multiple=True, metavar="TEXT", help="Ends the text, and is left out. Repeat for several.")
@click.option("-c", "--context", type=click.IntRange(1), metavar="N", help="The most tokens, the prompt's included (default: the model's).")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads (default: the cores).")
@click.option("--tensor-parallel", type=click.IntRange(1), default=1, metavar="N", help="Processes that share the model, a card each (default 1).")
@click.option("--activations", type=click.Choice(["f32", "q8"]), help="q8 (default) rounds what meets quantized and 16-bit weights.")
@click.option("--max-memory", metavar="SIZE", expose_value=False, callback=arguments.memory, help="Bytes, weights included (default: what is free).")
@arguments.options(arguments.DEVICE, arguments.READING)
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Continue a text with a language model, or chat with it.

    Without -p on a terminal it is a conversation: /exit or Ctrl-D ends it, Ctrl-C stops an answer. Without a terminal the prompt is standard input.

    MODEL is a GGUF file, a Hugging Face directory, or ONNX with its tokenizer beside it. Tokens are chosen as llama.cpp does, in this
    order: repeat penalty, top-k, top-p, min-p, temperature. How fast it was is said at the end, on standard error.
    """
    from ...models.language.generating import Timing
    from ...models.language.sampling import Sampling
    from ..modelling import load

    chatting = values["prompt"] is None and _is_terminal()
    for option in ("--system", "--chat-template"):
        if values[option[2:].replace("-", "_")] is not None and not (values["chat"] or chatting):
            raise UsageError("E-OPTION", None, f"{option} needs --chat")
    sampling = {name: values[name] for name in SAMPLING}
    Sampling(**sampling)
    placed = arguments.device(values)
    prompt = None if chatting else _prompt(values["prompt"])
    began = time.perf_counter()
    busy().enter("loading")
    graph = arguments.open_input(model, values)
    if values["tensor_parallel"] > 1:
        from ..ranked import Opening, load_ranked

        opening = Opening(model, arguments.read_options(values), values["source_format"], values["revision"], values["offline"])
        found: LanguageModel = load_ranked(opening, values["tensor_parallel"], threads=values["threads"], activations=values["activations"], **placed)
    else:
        found = load(graph, values["threads"], values["activations"], **placed)
    if prompt is None:
        _converse(found, model, values, Sampling(**sampling))
        return
    ids = _ids(found, model, prompt, values)
    loaded = time.perf_counter() - began
    busy().stop()
    out = current()
    notes = _notes(found, ids, prompt, values)
    out.warn(notes)
    timing = Timing()
    shown = not out.json and not out.quiet
    made = found.generate_batch(
        [ids], max_tokens=values["max_tokens"], stop=values["stop"], context=values["context"], timing=timing,
        on_text=(lambda _, text: out.content(text, end="")) if shown else None, **sampling,
    )[0]  # fmt: skip
    _end(made, timing, loaded)
    out.emit({
        "inputs": [model], "text": made.text, "prompt": made.prompt, "tokens": made.tokens, "reason": made.reason,
        "warnings": notes_json(notes), "timings": {"load": loaded, **timing.to_json()},
    })  # fmt: skip


def _is_terminal() -> bool:
    """Whether somebody sits there to talk with."""
    streams = (sys.stdin, sys.stdout)
    return not current().json and all(stream is not None and stream.isatty() for stream in streams)


def _prompt(given: str | None) -> str:
    """The prompt, or what standard input holds."""
    if given not in (None, "-"):
        assert given is not None
        return given
    if sys.stdin is None or (given is None and sys.stdin.isatty()):
        hint = "Give one with -p TEXT; a conversation needs a terminal for input and output, without --json"
        raise UsageError("E-LM-PROMPT", None, "there is no prompt", hint=hint)
    text = sys.stdin.read()
    if not text and given is None:
        hint = "Give one with -p TEXT, or pipe text to the command"
        raise UsageError("E-LM-PROMPT", None, "there is no prompt: standard input is empty", hint=hint)
    return text


def _converse(model: LanguageModel, path: str, values: dict[str, Any], sampling: Sampling) -> None:
    """Answer the user's messages until they end it."""
    from ...models.language.conversation import Conversation
    from ..chatting import chat

    if values["chat_template"] is not None:
        model.tokenizer.templates["default"] = arguments.template(values["chat_template"])
    conversation = Conversation(
        model, sampling, system=values["system"], max_tokens=values["max_tokens"], stop=values["stop"], context=values["context"], path=path
    )
    busy().stop()
    chat(conversation, lambda piece: current().content(piece, end=""))


def _ids(model: LanguageModel, path: str, prompt: str, values: dict[str, Any]) -> list[int]:
    """The prompt's ids."""
    if not values["chat"]:
        return model.tokenizer.encode(prompt)
    from ...models.language.chat import prompt as chat_prompt
    from ...models.language.chat import writes_bos

    if values["chat_template"] is not None:
        model.tokenizer.templates["default"] = arguments.template(values["chat_template"])
    system = [] if values["system"] is None else [{"role": "system", "content": values["system"]}]
    text = chat_prompt(model.tokenizer, [*system, {"role": "user", "content": prompt}], path=path)
    return model.tokenizer.encode(text, add_bos=False if writes_bos(model.tokenizer, text) else None)


def _notes(model: LanguageModel, ids: list[int], prompt: str, values: dict[str, Any]) -> list[Note]:
    """What may be wrong with the prompt."""
    from ...runtime.graph import Note

    unknown = model.tokenizer.unknown_markers(prompt)
    notes = [Note("W-TOKENIZER-MARKER", None, f"{marker} looks like a special token but is not one of this model") for marker in unknown]
    context, trained = values["context"], model.context
    if context is not None and trained is not None and context > trained and len(ids) + _count(values) > trained:
        notes.append(Note("W-LM-CONTEXT", None, f"the model was trained with {trained:,} tokens; text beyond that may make no sense"))
    return notes


def _count(values: dict[str, Any]) -> int:
    from ...models.language.model import DEFAULT_TOKENS

    return DEFAULT_TOKENS if values["max_tokens"] is None else int(values["max_tokens"])


def _end(made: Generation, timing: Timing, loaded: float) -> None:
    """Say how it ended and how fast it was, apart from the text."""
    out, said = current(), timing.to_json()
    if out.json or out.quiet:
        return
    ends = {"end": "the model ended it", "stop": "a stop text came", "length": "as many as asked for", "context": "the context is full"}
    out.say("")
    out.note("")
    out.note(
        f"{len(made.prompt):,} prompt tokens at {said['prompt_per_second']:.1f}/s, {len(made.tokens):,} generated at "
        f"{said['generated_per_second']:.1f}/s ({ends[made.reason]}); loaded in {loaded:.2f} s"
    )
