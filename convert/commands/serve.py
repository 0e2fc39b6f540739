"""``serve``: models over HTTP, by the interfaces of OpenAI, Text Embeddings Inference, Cohere and Jina."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...runtime.base import limits
from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.errors import UsageError
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current
from ..console.status_line import busy

if TYPE_CHECKING:
    from ...models.generation.batching.speculation import Speculation
    from ..serve.settings import Settings

GROUP = "Run"
EPILOG = """\b
Examples
  candle-convert serve model.gguf
  candle-convert serve model.gguf minilm_dir whisper_dir --port 8000
  candle-convert serve model_dir --host 0.0.0.0 --api-key-file keys.txt
"""


@click.command("serve", epilog=EPILOG)
@click.argument("paths", metavar="MODEL...", nargs=-1, required=True, type=shared_options.PATH)
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen at (default 127.0.0.1).")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, metavar="N", help="Port, 0 for a free one (default 8080)."
)
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="Name of a model (repeatable, in their order).")
@click.option(
    "--api-key-file", metavar="FILE", type=shared_options.PATH, help="Accepted API keys, one per line; # is a comment."
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    default=16,
    metavar="N",
    help="Texts generated at the same time (default 16).",
)
@click.option(
    "--queue",
    type=click.IntRange(0, 4096),
    default=64,
    metavar="N",
    help="Requests that may wait beyond those; more get 429 (default 64).",
)
@click.option(
    "-c", "--context", type=click.IntRange(1), metavar="N", help="Context size in tokens (default: the model's)."
)
@click.option(
    "--cache-memory",
    metavar="SIZE",
    help="Memory for the KV caches of a model; more requests wait (default: half of what --max-memory leaves).",
)
@shared_options.KV_TYPE
@click.option("--max-body", default="32MiB", metavar="SIZE", help="Maximum size of a request (default 32MiB).")
@click.option(
    "--timeout",
    type=Number(0, min_open=True),
    default=600,
    metavar="X",
    help="Seconds of a request, those in the queue included (default 600).",
)
@click.option(
    "--body-timeout",
    type=Number(0, min_open=True),
    default=30,
    metavar="X",
    help="Seconds in which the body of a request has to arrive (default 30).",
)
@click.option(
    "--grace",
    type=Number(0),
    default=30,
    metavar="X",
    help="Seconds that running requests have to finish after SIGTERM (default 30).",
)
@click.option(
    "--chat-template",
    metavar="FILE",
    type=shared_options.PATH,
    help="Chat template to use instead of those of the models.",
)
@click.option("--dry-run", is_flag=True, help="Load the models, show what would be served, and end.")
@shared_options.options(
    shared_options.SPECULATION, shared_options.RUNNING, shared_options.DEVICE, shared_options.READING
)
def COMMAND(paths: tuple[str, ...], **values: Any) -> None:  # noqa: N802
    """Serve models over HTTP, as OpenAI, TEI, Cohere and Jina do.

    Each MODEL is anything that the other commands run: language models (continuous batching), embedding models,
    rerankers, classifiers, Whisper, speech and diffusion models, models of pictures. /docs lists the endpoints, / is a
    page to try them.

    Another --host than loopback needs --api-key-file. The first SIGTERM or Ctrl-C lets running requests finish, the
    second ends the server at once.
    """
    from ..serve.endpoint import endpoints
    from ..serve.run_server import listening, run_server
    from ..serve.served_model import ServedModel
    from ..serve.server import Server

    out, watch = current(), Stopwatch()
    settings = _settings(values)
    names = _names(paths, values["aliases"])
    bound = None if values["dry_run"] else listening(settings.host, settings.port)
    speculation = _speculation(values)
    loaded = [_loaded(path, name, values) for path, name in zip(paths, names, strict=True)]
    settings = _within_memory(settings, loaded)
    models = [ServedModel(name, model, settings, speculation) for name, model in zip(names, loaded, strict=True)]
    busy().stop()
    served = {
        model.name: [endpoint.path for endpoint in endpoints() if endpoint.verb in model.verbs] for model in models
    }
    contexts = [f"{model.context:,}" if model.context else "" for model in models]
    rows = [
        (name, context, " ".join(open_to)) for context, (name, open_to) in zip(contexts, served.items(), strict=True)
    ]
    out.table(("model", "context", "endpoints"), rows, right=(1,))
    shown = [
        {"name": model.name, "path": path, "context": model.context, "endpoints": served[model.name]}
        for path, model in zip(paths, models, strict=True)
    ]
    server = Server(models, settings)
    if bound is None:
        server.close()
        out.emit({"inputs": list(paths), "models": shown, "address": None, "warnings": []})
        return
    host, port = bound.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def ready() -> None:
        out.say(f"✓ {address}  ready after {watch.seconds:.1f} s")
        out.emit({"inputs": list(paths), "models": shown, "address": address, "warnings": []})

    run_server(server, bound, ready)


def _settings(values: dict[str, Any]) -> Settings:
    from ..serve.settings import Settings

    keys = None if values["api_key_file"] is None else _keys(values["api_key_file"])
    if keys is None and not _is_loopback(values["host"]):
        why = f"--host {values['host']} can be reached from other machines"
        raise UsageError("E-SERVE-KEY", None, why, hint="Pass --api-key-file FILE with a key that clients have to send")
    return Settings(
        host=values["host"],
        port=values["port"],
        parallel=values["parallel"],
        queue=values["queue"],
        context=values["context"],
        cache_memory=None if values["cache_memory"] is None else limits.size(values["cache_memory"]),
        max_body=limits.size(values["max_body"]),
        timeout=values["timeout"],
        body_timeout=values["body_timeout"],
        grace=values["grace"],
        api_keys=keys,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keys(path: str) -> tuple[bytes, ...]:
    from ..run.text_lines import texts_of

    lines = [line.strip() for line in texts_of((), path)]
    keys = tuple(line.encode() for line in lines if line and not line.startswith("#"))
    if not keys:
        raise UsageError("E-SERVE-KEY", path, "holds no key", hint="Write one key per line")
    return keys


def _names(paths: tuple[str, ...], aliases: tuple[str, ...]) -> list[str]:
    """A name for each model: the alias, or the name of its file or folder."""
    if len(aliases) > len(paths):
        raise UsageError("E-OPTION", None, "more names by --alias than models", expected=len(paths), found=len(aliases))
    names = [*aliases, *(_stem(path) for path in paths[len(aliases) :])]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError("E-OPTION", None, f"two models are called {twice}", hint="Name them with --alias NAME")
    return names


def _stem(path: str) -> str:
    if path.startswith("hf://"):
        return path.removeprefix("hf://")
    whole = Path(os.path.abspath(path))
    return whole.name if whole.is_dir() else whole.stem


def _speculation(values: dict[str, Any]) -> Speculation | None:
    """The options of speculative decoding, with the loaded draft."""
    from ...models.generation.batching.speculation import speculation_of

    path = values["draft"]
    if path is not None:
        busy().enter("loading the draft")
    return speculation_of(None if path is None else option_values.load_draft(path, values), values["speculate"])


def _loaded(path: str, name: str, values: dict[str, Any]) -> Any:
    busy().enter(f"loading {name}")
    model = option_values.load_model(path, values)
    if not hasattr(model, "verbs"):
        raise UsageError("E-SERVE-MODEL", path, "the model has nothing to serve", expected="a model with a known task")
    if "generate" in model.verbs:
        option_values.store_cache_as(model, path, values)
        if values["chat_template"] is not None:
            model.tokenizer.templates["default"] = option_values.template(values["chat_template"])
    return model


def _within_memory(settings: Settings, models: Sequence[Any]) -> Settings:
    """Settings whose KV caches take half of what ``--max-memory`` leaves beyond the weights, unless they say more."""
    allowed = limits.current()
    if settings.cache_memory is not None or "memory" not in allowed.chosen:
        return settings
    graphs = [graph for model in models if (graph := getattr(model, "graph", None)) is not None]
    weights = sum(tensor.nbytes for graph in graphs for tensor in graph.weights.values())
    count = sum("generate" in model.verbs for model in models)
    return dataclasses.replace(settings, cache_memory=max(0, allowed.memory - weights) // 2 // max(count, 1))
