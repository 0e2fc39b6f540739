"""``template``: renders chat templates in a sandboxed process with limits."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import FormatError, UsageError
from ..cli import option_values, shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ...models.tokenizer import Tokenizer

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert template render model.gguf --user 'Hello'
  candle-convert template render model-dir/ --messages c.json --tools f.json
  candle-convert template render chat_template.jinja --user Hi --json
"""
RENDER_EPILOG = """\b
Examples
  candle-convert template render model.gguf --system 'Be brief' --user 'Hello'
  candle-convert template render model-dir/ --messages chat.json --no-answer
  candle-convert template render t.jinja --user Hi --set enable_thinking=false
"""
JINJA = (".jinja", ".jinja2", ".j2")


@click.group("template", epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """Render the chat template of a model, in a sandbox with limits."""


@COMMAND.command("render", epilog=RENDER_EPILOG)
@click.argument("path", metavar="FILE", type=shared_options.PATH)
@click.option(
    "--messages",
    metavar="FILE.json",
    type=shared_options.PATH,
    help="A list of messages, each with role and content; - is standard input.",
)
@click.option("--system", metavar="TEXT", help="System message.")
@click.option("--user", multiple=True, metavar="TEXT", help="User message (repeatable).")
@click.option(
    "--tools", metavar="FILE.json", type=shared_options.PATH, help="A list of functions that the model may call."
)
@click.option(
    "--chat-template",
    "own",
    metavar="FILE.jinja",
    type=shared_options.PATH,
    help="Chat template to use instead of the model's.",
)
@click.option("--name", default="default", metavar="NAME", help="Name of the template, if there are several.")
@click.option("--set", "settings", multiple=True, metavar="NAME=JSON", help="Other template variable.")
@click.option("--answer/--no-answer", default=True, help="End with the start of the model's answer (default: yes).")
@shared_options.options(shared_options.READING)
def render(
    path: str,
    messages: str | None,
    system: str | None,
    user: tuple[str, ...],
    tools: str | None,
    own: str | None,
    name: str,
    settings: tuple[str, ...],
    answer: bool,
    **values: Any,
) -> None:
    """Print the prompt of a chat.

    FILE is a GGUF file, a model directory or a template file. Messages come from a file, or from --system and --user.
    """
    from ...models.generation.chat_template import prompt, rendered_with

    chat = [*([{"role": "system", "content": system}] if system is not None else []), *_messages(messages)]
    chat += [{"role": "user", "content": text} for text in user]
    if not chat:
        raise UsageError("E-TEMPLATE-MESSAGES", None, "no messages", hint="Give --user TEXT or --messages FILE.json")
    given = {key: _value(text) for key, text in (shared_options.pair(item, "--set NAME=JSON") for item in settings)}
    functions = None if tools is None else _list(tools, "tools")
    tokenizer: Tokenizer | None = None
    if path.lower().endswith(JINJA):
        text = rendered_with(
            option_values.template(path), None, chat, tools=functions, answer=answer, path=path, **given
        )
    else:
        tokenizer = _tokenizer(path, values)
        if own is not None:
            tokenizer.templates[name] = option_values.template(own)
        text = prompt(tokenizer, chat, name=name, tools=functions, answer=answer, path=path, **given)
    unknown = [] if tokenizer is None else tokenizer.unknown_markers(text)
    out = current()
    if unknown:
        out.note(f"! W-TOKENIZER-MARKER  {', '.join(unknown)} look like special tokens but are not in the vocabulary")
    out.content(text, exact=True)
    out.emit({"inputs": [path], "template": name, "messages": chat, "text": text, "unknown_markers": unknown})


def _tokenizer(path: str, values: dict[str, Any]) -> Tokenizer:
    from ..translate.open_tokenizer import open_tokenizer

    reading = {"options": option_values.read_options(values), "format": values["source_format"]}
    return open_tokenizer(path, **reading, revision=values["revision"], offline=values["offline"])[1]


def _messages(path: str | None) -> list[Any]:
    return [] if path is None else _list(path, "messages")


def _list(path: str, what: str) -> list[Any]:
    """A list in a JSON file, or under its name in an object, as requests to servers have it."""
    from ...runtime.base.untrusted.json import parse
    from ...runtime.tensor.file import Source

    if path == "-":
        try:
            found = json.loads(sys.stdin.read())
        except ValueError as error:
            raise FormatError("E-TEMPLATE-MESSAGES", None, f"standard input is not JSON: {error}") from error
    else:
        source = Source(path)
        source.budget.charge(source.size, path)
        found = parse(source.read(0, source.size), source, 0, "E-TEMPLATE-MESSAGES")
    found = found.get(what) if isinstance(found, dict) else found
    if not isinstance(found, list):
        hint = '[{"role": "user", "content": "Hello"}]'
        raise FormatError("E-TEMPLATE-MESSAGES", None if path == "-" else path, f"holds no list of {what}", hint=hint)
    return found


def _value(text: str) -> Any:
    """A value as JSON, or as the text that it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
