"""``generate``: text generation and chat with a language model, and text from text with an encoder-decoder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cluster import cluster_option
from ..cluster.parallel import pipeline_option
from ..console.atomic_replace import refuse_existing, replacing
from ..console.output import current, notes_json
from ..console.status_line import PROMPT, busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models.generation.batching.grammar import Grammar
    from ...models.generation.generate import Generation, Timing
    from ...models.generation.language_model import LanguageModel
    from ...models.generation.sampling import Sampling
    from ...models.pipelines.multimodal.prompts.prompt_rules import Prompted
    from ...models.seq2seq.encoder_decoder_model import EncoderDecoderModel
    from ...runtime.ir.graph import Note

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert generate model.gguf -p "Once upon a time" --seed 7
  candle-convert generate model_dir -p "What is this?" --chat --image cat.png
  candle-convert generate model.gguf -f prompts.jsonl -o answers.jsonl
"""
BEAMS, LANGUAGES = "beams", ("source_lang", "target_lang")
"""Options of encoder-decoders."""
SPECULATION = ("draft", "speculate")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last", "seed")


@click.command("generate", epilog=EPILOG)
@click.argument("model", metavar="MODEL", type=shared_options.PATH)
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt; - reads standard input. Without it: a conversation.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=shared_options.PATH,
    help="Prompts to answer together, one JSON object a line with prompt or messages; - for standard input.",
)
@click.option("-o", "--output", metavar="OUT", type=shared_options.PATH, help="Where answers of -f go, as JSON lines.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
@click.option(
    "--json-schema", metavar="FILE", type=shared_options.PATH, help="JSON schema that the text follows, as JSON."
)
@click.option(
    "--grammar", metavar="FILE", type=shared_options.PATH, help="Grammar that the text follows, in GBNF or Lark."
)
@click.option("--chat", is_flag=True, help="Apply the model's chat template to the prompt as a user message.")
@shared_options.PROMPT_IMAGES
@click.option(
    "--audio",
    multiple=True,
    metavar="FILE",
    type=shared_options.PATH,
    help="Recording that the prompt is about (repeatable; audio-language models).",
)
@click.option(
    "--mmproj",
    metavar="FILE",
    type=shared_options.PATH,
    help="Encoder and projector of a GGUF model (default: mmproj-NAME.gguf in its directory).",
)
@click.option("--system", metavar="TEXT", help="System message, with --chat.")
@click.option(
    "--chat-template",
    metavar="FILE",
    type=shared_options.PATH,
    help="Chat template to use instead of the model's, with --chat.",
)
@click.option(
    "-n",
    "--max-tokens",
    "--max-new-tokens",
    "--n-predict",
    "max_tokens",
    type=click.IntRange(0),
    metavar="N",
    help="Maximum number of tokens to generate (default 128; in a conversation as many as fit).",
)
@click.option(
    "--temperature",
    "--temp",
    type=float,
    metavar="X",
    help="Sampling temperature; 0 picks the most likely token (default 0.8; with encoder-decoders 0).",
)
@click.option(
    "--top-k", type=int, default=40, metavar="N", help="Sample from the N most likely tokens, 0 for all (default 40)."
)
@click.option(
    "--top-p",
    type=float,
    default=0.95,
    metavar="X",
    help="Sample from the most likely tokens with this total probability (default 0.95).",
)
@click.option(
    "--min-p",
    type=float,
    default=0.05,
    metavar="X",
    help="Minimum probability relative to the most likely token (default 0.05).",
)
@click.option(
    "--repeat-penalty", type=float, default=1.0, metavar="X", help="Penalty for recent tokens (default 1: off)."
)
@click.option(
    "--repeat-last",
    "--repeat-last-n",
    type=int,
    default=64,
    metavar="N",
    help="Number of recent tokens for the penalty, -1 for all (default 64).",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Random seed (default: random).")
@click.option(
    "--beams",
    "--num-beams",
    "beams",
    type=click.IntRange(1),
    metavar="N",
    help="Hypotheses of a beam search, encoder-decoders only (default: the model's, or 1).",
)
@click.option("--source-lang", metavar="CODE", help="Language of the text, for models that translate, such as en.")
@click.option("--target-lang", metavar="CODE", help="Language of the translation.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Stop string, not part of the output (repeatable).")
@click.option(
    "-c",
    "--context",
    type=click.IntRange(1),
    metavar="N",
    help="Context size in tokens, prompt included (default: the model's).",
)
@shared_options.THREADS
@click.option(
    "--tensor-parallel",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Number of processes that share the model, one GPU each (default 1).",
)
@click.option(
    "--activations",
    type=click.Choice(["f32", "q8"]),
    help="q8 (default) rounds activations that are multiplied with quantized and 16-bit weights.",
)
@shared_options.MAX_MEMORY
@shared_options.KV_TYPE
@shared_options.options(
    shared_options.SPECULATION,
    shared_options.DEVICE,
    cluster_option.RUNS,
    pipeline_option.PIPELINE,
    shared_options.READING,
)
@cluster_option.connected
def COMMAND(model: str, **values: Any) -> None:  # noqa: N802
    """Continue or translate a text, or chat with a language model.

    Without -p on a terminal, starts a conversation: /exit or Ctrl-D ends it, Ctrl-C stops an answer. Without a
    terminal, reads the prompt from standard input.

    MODEL is a GGUF file, a Hugging Face directory, or an ONNX file with its tokenizer in the same directory. Sampling
    follows llama.cpp: repeat penalty, top-k, top-p, min-p, temperature. Speed is reported at the end, on standard
    error.
    """
    from ...models.generation.generate import Timing
    from ...models.generation.sampling import Sampling
    from ...models.seq2seq.encoder_decoder_model import EncoderDecoderModel
    from ..load.load_model import load_text_model
    from ..run.prompt_rows import read_rows

    chatting = values["prompt"] is None and values["file"] is None and _is_terminal()
    _check_rows(values)
    stages = pipeline_option.stages(values)
    if stages is not None and values["tensor_parallel"] > 1:
        raise UsageError("E-OPTION", None, "--pipeline-parallel and --tensor-parallel cannot be combined")
    if values["cluster"] is not None and values["file"] is None and values["tensor_parallel"] == 1:
        stages = stages or values["cluster"].workers.count
    for option in ("--system", "--chat-template"):
        if values[option[2:].replace("-", "_")] is not None and not (values["chat"] or chatting):
            raise UsageError("E-OPTION", None, f"{option} needs --chat")
    sampling = {name: values[name] for name in SAMPLING if values[name] is not None}
    Sampling(**sampling)
    placed = option_values.device(values)
    rows = None if values["file"] is None else read_rows(values["file"])
    prompt = None if chatting or rows is not None else _prompt(values["prompt"])
    if prompt is None and (values["images"] or values["audio"]):
        raise UsageError("E-OPTION", None, "--image and --audio need a prompt", hint="Give a text with -p TEXT")
    watch = Stopwatch()
    busy().enter("loading")
    graph = option_values.open_input(model, values, running=True)
    if values["tensor_parallel"] > 1:
        from ...models.generation.language_model import Placement
        from ..load.tensor_parallel import Opening, load_ranked
        from ..open.hub import absolute

        opening = Opening(
            absolute(model),
            option_values.read_options(values),
            values["source_format"],
            values["revision"],
            values["offline"],
        )
        found: LanguageModel | EncoderDecoderModel = load_ranked(
            opening,
            values["tensor_parallel"],
            threads=values["threads"],
            activations=values["activations"],
            placement=Placement(**placed),
            launch=_launch(model, values),
        )
    elif stages is not None:
        found = pipeline_option.pipelined(model, values, stages, values["activations"])
    else:
        found = load_text_model(graph, values["threads"], values["activations"], **placed)
    option_values.store_cache_as(found, model, values)
    if isinstance(found, EncoderDecoderModel):
        for option in ("file", "json_schema", "grammar", *SPECULATION):
            if values[option] is not None:
                raise UsageError("E-OPTION", model, f"--{option.replace('_', '-')} needs a language model")
        if values["images"] or values["audio"]:
            raise UsageError("E-LM-MODALITY", model, "the model takes no pictures or audio with a prompt")
        _transform(found, model, prompt, values, sampling, watch)
        return
    for option in (BEAMS, *LANGUAGES):
        if values[option] is not None:
            raise UsageError("E-OPTION", None, f"--{option.replace('_', '-')} needs an encoder-decoder")
    grammar = _grammar(found, model, values)
    speculation = _speculation(found, model, values)
    if rows is not None:
        _answer(found, model, rows, values, sampling, grammar, speculation)
        return
    if prompt is None:
        _converse(found, model, values, Sampling(**sampling), speculation)
        return
    given: Any = _given(found, model, prompt, values)
    ids = given if isinstance(given, list) else given.ids
    loaded = watch.seconds
    busy().enter(PROMPT)
    out = current()
    notes = _notes(found, ids, prompt, values)
    out.warn(notes)
    timing = Timing()
    further = {**({} if grammar is None else {"grammar": grammar}), **speculation}
    made = found.generate_batch(
        [given], max_tokens=values["max_tokens"], stop=values["stop"], context=values["context"], timing=timing,
        on_text=_writer(), **further, **sampling,
    )[0]  # fmt: skip
    _end(made, timing, loaded, watch)
    _emit(model, made, timing, loaded, watch, notes)


def _launch(path: str, values: dict[str, Any]) -> Any:
    """Launcher of tensor-parallel ranks on a cluster's workers; None for processes of this machine."""
    if values["cluster"] is None:
        return None
    from ..cluster.parallel.model_ranks import launch_on

    cluster_option.check(values["cluster"], [path])
    return launch_on(values["cluster"])


def _check_rows(values: dict[str, Any]) -> None:
    """UsageError for options that do not go together with those of files of prompts."""
    if values["output"] is not None and values["file"] is None:
        raise UsageError("E-OPTION", None, "-o needs prompts with -f FILE")
    if values["file"] is not None:
        for option in ("prompt", "images", "audio", "chat"):
            if values[option]:
                why = f"-f answers the prompts of a file, without --{option}"
                raise UsageError("E-OPTION", None, why, hint="Rows with messages use the chat template")
        if values["output"] is not None:
            refuse_existing(values["output"], force=values["force"])
    if values["json_schema"] is not None and values["grammar"] is not None:
        raise UsageError("E-OPTION", None, "--json-schema and --grammar exclude each other")


def _grammar(found: Any, path: str, values: dict[str, Any]) -> Grammar | None:
    """The compiled grammar of the options."""
    stated = _grammar_text(values)
    if stated is None:
        return None
    option, text = stated
    if hasattr(found, "chat_prompt"):
        raise UsageError("E-OPTION", path, f"--{option.replace('_', '-')} needs a model of text alone")
    from ...models.generation.batching.grammar import GrammarCompiler

    compiler = GrammarCompiler(found.tokenizer)
    return compiler.json_schema(text) if option == "json_schema" else compiler.grammar(text)


def _speculation(found: Any, path: str, values: dict[str, Any]) -> dict[str, Any]:
    """The options of speculative decoding, with the loaded draft."""
    if values["draft"] is None and not values["speculate"]:
        return {}
    if hasattr(found, "chat_prompt"):
        raise UsageError("E-OPTION", path, "--draft and --speculate need a model of text alone")
    draft = None if values["draft"] is None else option_values.load_draft(values["draft"], values)
    return {"draft": draft, "speculate": values["speculate"]}


def _answer(
    found: LanguageModel,
    path: str,
    rows: list[dict[str, Any]],
    values: dict[str, Any],
    sampling: dict[str, Any],
    grammar: Grammar | None,
    speculation: dict[str, Any],
) -> None:
    """Answer the prompts of a file."""
    from ...models.generation.batching.offline import generate_all
    from ...models.generation.batching.speculation import speculation_of
    from ...models.generation.generate import Timing
    from ..run.prompt_rows import answer_lines, requests_of

    if hasattr(found, "chat_prompt"):
        raise UsageError("E-OPTION", path, "-f needs a model of text alone")
    if speculation and values["cluster"] is not None:
        raise UsageError("E-OPTION", path, "--draft and --speculate do not apply to --cluster", hint="Omit them")
    options = {**sampling, "max_tokens": _count(values), "stop": values["stop"]}
    timing = Timing()
    if values["cluster"] is None or values["pipeline_parallel"] is not None or values["tensor_parallel"] > 1:
        made = generate_all(
            found,
            requests_of(found, rows, options, grammar),
            values["context"] or found.context,
            timing=timing,
            speculation=speculation_of(**speculation) if speculation else None,
        )
    else:
        made = _by_workers(path, rows, values, options, timing)
    busy().stop()
    out, lines = current(), answer_lines(rows, made)
    if values["output"] is not None:
        with replacing(values["output"], force=values["force"]) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    elif not out.json:
        out.content("\n".join(lines))
    said = timing.to_json()
    out.note(
        f"{counted(len(rows), 'prompt')}, {timing.prompt_tokens:,} prompt tokens at {said['prompt_per_second']:.1f}/s, "
        f"{timing.generated_tokens:,} generated at {said['generated_per_second']:.1f}/s{_drafted(timing)}"
    )
    out.emit({
        "inputs": [path], "outputs": [] if values["output"] is None else [values["output"]],
        "results": [{"text": one.text, "tokens": one.tokens, "reason": one.reason} for one in made],
        "timings": said,
    })  # fmt: skip


def _by_workers(
    path: str, rows: list[dict[str, Any]], values: dict[str, Any], options: dict[str, Any], timing: Timing
) -> list[Generation]:
    """The answers of the workers of a cluster to the prompts of a file."""
    from ..cluster.prompt_rows import Prompts, answers_on

    loading = {"activations": values["activations"], **option_values.device(values)}
    opening = cluster_option.opening(path, values)
    cluster_option.check(values["cluster"], [path])
    work = Prompts(opening, options, values["context"], _grammar_text(values), loading)
    progress = option_values.progress(values | {"progress_style": "auto"})
    progress.phase("generating")
    progress.start(len(rows), unit="prompts")
    try:
        return answers_on(values["cluster"], work, rows, timing, progress.advance)
    finally:
        progress.finish()


def _grammar_text(values: dict[str, Any]) -> tuple[str, str] | None:
    """The option that has a grammar, and its text."""
    option = next((name for name in ("json_schema", "grammar") if values[name] is not None), None)
    if option is None:
        return None
    from ..run.text_lines import texts_of

    return option, "\n".join(texts_of((), values[option]))


def _transform(
    model: EncoderDecoderModel,
    path: str,
    prompt: str | None,
    values: dict[str, Any],
    sampling: dict[str, Any],
    watch: Stopwatch,
) -> None:
    """Print the text that an encoder-decoder makes of the prompt."""
    from ...models.generation.generate import Timing

    if values["chat"] or prompt is None:
        why = "encoder-decoders do not chat" if values["chat"] else "missing prompt"
        raise UsageError("E-LM-PROMPT", path, why, hint="Give a text with -p TEXT")
    if values["context"] is not None:
        raise UsageError("E-OPTION", path, "--context needs a language model")
    options = {name: values[name] for name in (BEAMS, *LANGUAGES) if values[name] is not None}
    model.tokenizer  # noqa: B018
    loaded = watch.seconds
    busy().enter(PROMPT)
    timing = Timing()
    made = model.generate_batch(
        [prompt], max_tokens=values["max_tokens"], stop=values["stop"], timing=timing, on_text=_writer(), **options,
        **sampling,
    )[0]  # fmt: skip
    _end(made, timing, loaded, watch)
    _emit(path, made, timing, loaded, watch, [])


def _writer() -> Callable[[int, str], None] | None:
    """Prints text as it comes, where text is asked for."""
    out = current()

    def write(row: int, text: str) -> None:
        busy().stop()
        out.content(text, end="", exact=True)

    return None if out.json or out.quiet else write


def _emit(path: str, made: Generation, timing: Timing, loaded: float, watch: Stopwatch, notes: list[Note]) -> None:
    current().emit({
        "inputs": [path], "text": made.text, "prompt": made.prompt, "tokens": made.tokens, "reason": made.reason,
        "warnings": notes_json(notes),
        "timings": {"load": loaded, "compile": watch.compile_seconds, **timing.to_json()},
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
        raise UsageError("E-LM-PROMPT", None, "missing prompt", hint=hint)
    text = sys.stdin.read()
    if not text and given is None:
        hint = "Give one with -p TEXT, or pipe text to the command"
        raise UsageError("E-LM-PROMPT", None, "missing prompt: standard input is empty", hint=hint)
    return text


def _converse(
    model: LanguageModel, path: str, values: dict[str, Any], sampling: Sampling, speculation: dict[str, Any]
) -> None:
    """Answer the user's messages until they end it."""
    from ...models.generation.batching.offline import SpeculatedTurns
    from ...models.generation.batching.speculation import speculation_of
    from ...models.generation.conversation import Conversation
    from ..console.chat import chat

    if values["chat_template"] is not None:
        model.tokenizer.templates["default"] = option_values.template(values["chat_template"])
    chosen = speculation_of(speculation.get("draft"), speculation.get("speculate"))
    answers = SpeculatedTurns(model, sampling, values["stop"], values["context"], chosen) if chosen else None
    conversation = Conversation(
        model,
        sampling,
        system=values["system"],
        max_tokens=values["max_tokens"],
        stop=values["stop"],
        context=values["context"],
        path=path,
        answers=answers,
    )
    busy().stop()
    chat(conversation, lambda piece: current().content(piece, end=""))


def _given(model: LanguageModel, path: str, prompt: str, values: dict[str, Any]) -> list[int] | Prompted:
    """The prompt's ids, and arrays of its pictures and sounds, as the model's processor makes them. UsageError for
    pictures and sounds of models that take none."""
    images, audio = values["images"], values["audio"]
    if not hasattr(model, "chat_prompt"):
        if not images and not audio:
            return _ids(model, path, prompt, values)
        noun = "pictures" if images else "audio"
        raise UsageError("E-LM-MODALITY", path, f"the model takes no {noun}", expected="a multimodal language model")
    if not values["chat"]:
        found: Prompted = model.prompted(prompt, images, audio)
        return found
    if values["chat_template"] is not None:
        model.tokenizer.templates["default"] = option_values.template(values["chat_template"])
    said = values["system"]
    system = [] if said is None else [{"role": "system", "content": _parts(said) if images or audio else said}]
    parts = [{"type": "image", "image": image} for image in images]
    parts += [{"type": "audio", "audio": sound} for sound in audio]
    content = [*parts, *_parts(prompt)] if parts else prompt
    asked: Prompted = model.chat_prompt([*system, {"role": "user", "content": content}], path)
    return asked


def _parts(text: str) -> list[dict[str, str]]:
    """A text as the only content part of a message."""
    return [{"type": "text", "text": text}]


def _ids(model: LanguageModel, path: str, prompt: str, values: dict[str, Any]) -> list[int]:
    """The prompt's ids."""
    if not values["chat"]:
        return model.tokenizer.encode(prompt)
    from ...models.generation.chat_template import prompt as chat_prompt
    from ...models.generation.chat_template import writes_bos

    if values["chat_template"] is not None:
        model.tokenizer.templates["default"] = option_values.template(values["chat_template"])
    system = [] if values["system"] is None else [{"role": "system", "content": values["system"]}]
    text = chat_prompt(model.tokenizer, [*system, {"role": "user", "content": prompt}], path=path)
    return model.tokenizer.encode(text, add_bos=False if writes_bos(model.tokenizer, text) else None)


def _notes(model: LanguageModel, ids: list[int], prompt: str, values: dict[str, Any]) -> list[Note]:
    """Possible problems of the prompt."""
    from ...runtime.ir.graph import Note

    unknown = model.tokenizer.unknown_markers(prompt)
    notes = [
        Note("W-TOKENIZER-MARKER", None, f"{marker} looks like a special token but is not one of this model")
        for marker in unknown
    ]
    context, trained = values["context"], model.context
    if context is not None and trained is not None and context > trained and len(ids) + _count(values) > trained:
        notes.append(
            Note(
                "W-LM-CONTEXT",
                None,
                f"the model was trained with {counted(trained, 'token')}; longer text may be incoherent",
            )
        )
    return notes


def _count(values: dict[str, Any]) -> int:
    from ...models.generation.request import DEFAULT_TOKENS

    return DEFAULT_TOKENS if values["max_tokens"] is None else int(values["max_tokens"])


def _drafted(timing: Timing) -> str:
    """The tokens of speculation for the line of speeds; empty without any."""
    if not timing.drafted_tokens:
        return ""
    return f", {timing.accepted_tokens:,} of {counted(timing.drafted_tokens, 'proposed token')} accepted"


def _end(made: Generation, timing: Timing, loaded: float, watch: Stopwatch) -> None:
    """Say how it ended and how fast it was, apart from the text."""
    busy().stop()
    out, said = current(), timing.to_json()
    if out.json or out.quiet:
        return
    ends = {
        "end": "end of text",
        "stop": "stop string",
        "length": "--max-tokens reached",
        "context": "the context is full",
    }
    compiled = (
        f"; compiled {counted(watch.kernels, 'kernel')} in {watch.compile_seconds:.1f} s, once per machine"
        if watch.kernels
        else ""
    )
    out.say("")
    out.note("")
    out.note(
        f"{len(made.prompt):,} prompt tokens at {said['prompt_per_second']:.1f}/s, {len(made.tokens):,} generated at "
        f"{said['generated_per_second']:.1f}/s ({ends[made.reason]}){_drafted(timing)}; "
        f"loaded in {loaded:.2f} s{compiled}"
    )
