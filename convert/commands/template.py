"""``template``: chat templates, rendered in a sandboxed process with limits."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import FormatError, UsageError
from .. import arguments
from ..output import current

if TYPE_CHECKING:
    from ...models.language.tokenizer import Tokenizer

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
def COMMAND() -> None:  # noqa: N802 (the name that the registry looks for)
    """Render the chat template of a model, in a sandbox with limits."""


@COMMAND.command("render", epilog=RENDER_EPILOG)
@click.argument("path", metavar="FILE", type=arguments.PATH)
@click.option("--messages", metavar="FILE.json", type=arguments.PATH, help="A list of messages, each with role and content; - is standard input.")
@click.option("--system", metavar="TEXT", help="A message of the system before the others.")
@click.option("--user", multiple=True, metavar="TEXT", help="A message of the user (repeatable).")
@click.option("--tools", metavar="FILE.json", type=arguments.PATH, help="A list of functions that the model may call.")
@click.option("--chat-template", "own", metavar="FILE.jinja", type=arguments.PATH, help="Another template than the model's.")
@click.option("--name", default="default", metavar="NAME", help="Which template, if there are several.")
@click.option("--set", "settings", multiple=True, metavar="NAME=JSON", help="What else the template asks for.")
@click.option("--answer/--no-answer", default=True, help="End with what begins the model's answer (default: yes).")
@arguments.options(arguments.READING)
def render(
    path: str, messages: str | None, system: str | None, user: tuple[str, ...], tools: str | None, own: str | None, name: str,
    settings: tuple[str, ...], answer: bool, **values: Any,
) -> None:  # fmt: skip
    """Print the prompt that a chat becomes.

    FILE is a GGUF file, a model directory or a template's own file. Messages come from a file, or from --system and --user.
    """
    from ...models.language.chat import prompt, rendered_with

    chat = [*([{"role": "system", "content": system}] if system is not None else []), *_messages(messages)]
    chat += [{"role": "user", "content": text} for text in user]
    if not chat:
        raise UsageError("E-TEMPLATE-MESSAGES", None, "no messages", hint="Give --user TEXT or --messages FILE.json")
    given = {key: _value(text) for key, text in (arguments.pair(item, "--set NAME=JSON") for item in settings)}
    functions = None if tools is None else _list(tools, "tools")
    tokenizer: Tokenizer | None = None
    if path.lower().endswith(JINJA):
        text = rendered_with(arguments.template(path), None, chat, tools=functions, answer=answer, path=path, **given)
    else:
        tokenizer = _tokenizer(path, values)
        if own is not None:
            tokenizer.templates[name] = arguments.template(own)
        text = prompt(tokenizer, chat, name=name, tools=functions, answer=answer, path=path, **given)
    unknown = [] if tokenizer is None else tokenizer.unknown_markers(text)
    out = current()
    if unknown:
        out.note(f"! W-TOKENIZER-MARKER  {', '.join(unknown)} look like special tokens that are not in the vocabulary")
    out.content(text)
    out.emit({"inputs": [path], "template": name, "messages": chat, "text": text, "unknown_markers": unknown})


def _tokenizer(path: str, values: dict[str, Any]) -> Tokenizer:
    from ..tokenizing import open_tokenizer

    reading = {"options": arguments.read_options(values), "format": values["source_format"]}
    return open_tokenizer(path, **reading, revision=values["revision"], offline=values["offline"])[1]


def _messages(path: str | None) -> list[Any]:
    return [] if path is None else _list(path, "messages")


def _list(path: str, what: str) -> list[Any]:
    """A list in a JSON file, or under its name in an object, as requests to servers have it."""
    from ...runtime.json import parse
    from ...runtime.source import Source

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
