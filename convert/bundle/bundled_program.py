"""The program of a bundle: answers requests for its model, as JSON lines or over HTTP.

A request is an object with ``op`` and its fields; `OPERATIONS` describes them. An answer is an object with the results,
or with ``error`` in place of them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...models.pipelines.task_model import TEXTS
from ...runtime.base.errors import Error, FileAccessError, LimitError, UnsupportedError, UsageError
from ...runtime.jit import isa
from . import MANIFEST

LARGEST_REQUEST = 64 << 20
"""Bytes of a request."""
USAGE = "usage: python APP [--http [HOST:]PORT], or JSON lines such as"


class Application:
    """A model and the operations that it offers.

    Attributes:
        model: the model of a task, None for a network without one.
        session: of such a network.
        opens_files: whether requests may name files.
    """

    def __init__(self, path: str, threads: int | None = None) -> None:
        self.model, self.session = _opened(path, threads)
        self.opens_files = True
        self._one = threading.Lock()

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that a request may name."""
        return ("run",) if self.model is None else tuple(name for name in OPERATIONS if name in self.model.verbs)

    def answer(self, request: Any) -> dict[str, Any]:
        """The answer to a request; UsageError for one that is not understood."""
        if not isinstance(request, dict) or request.get("op") not in self.operations:
            why = "a request is a JSON object with the field op"
            raise UsageError("E-BUNDLE-OP", None, why, expected=" or ".join(self.operations))
        fields = dict(request)
        operation = fields.pop("op")
        with self._one:
            return OPERATIONS[operation](self, fields)

    def prepare(self) -> None:
        """Compile every kernel that requests may need."""
        if self.model is not None and hasattr(self.model, "prepare"):
            self.model.prepare()


def _opened(path: str, threads: int | None) -> tuple[Any, Any]:
    """The model of a task, or the session of a network without one."""
    from ..load.load_model import load

    try:
        return load(path, threads), None
    except UsageError as error:
        if error.code != "E-ONNX-TASK":
            raise
    from ...runtime.session import Session
    from ..open.open_model import open_model

    return None, Session(open_model(path), threads)


def _taken(fields: dict[str, Any], name: str, kinds: type | tuple[type, ...]) -> Any:
    value = fields.pop(name, None)
    if not isinstance(value, kinds):
        raise UsageError("E-BUNDLE-FIELD", None, f"the field {name} is missing, or of another type")
    return value


def _run(application: Application, fields: dict[str, Any]) -> dict[str, Any]:
    session = application.session
    inputs = _taken(fields, "inputs", dict)
    known = {value.name: value.dtype for value in session.graph.inputs}
    unknown = next((name for name in (*inputs, *fields) if name not in known or name in fields), None)
    if unknown is not None:
        raise UsageError("E-BUNDLE-FIELD", None, f"unknown input {unknown}", expected=list(known))
    fed = {name: np.array(value, known[name] and known[name].as_numpy()) for name, value in inputs.items()}
    names = [value.name for value in session.get_outputs()]
    return {"outputs": dict(zip(names, session.run(None, fed), strict=True))}


def _generate(application: Application, fields: dict[str, Any]) -> dict[str, Any]:
    prompt = _taken(fields, "prompt", (str, list))
    for name in ("images", "audio"):
        if name in fields:
            fields[name] = [_content(application, each) for each in _taken(fields, name, list)]
    return {"text": application.model.generate(prompt, **fields)}


def _embed(application: Application, fields: dict[str, Any]) -> dict[str, Any]:
    return {"vectors": application.model.embed(_inputs(application, fields), **fields)}


def _predict(application: Application, fields: dict[str, Any]) -> dict[str, Any]:
    return {"results": application.model.predict(_inputs(application, fields), **fields)}


def _transcribe(application: Application, fields: dict[str, Any]) -> dict[str, Any]:
    sound = _content(application, fields.pop("audio", None))
    return dict(application.model.transcribe(sound, **fields).to_json())


def _inputs(application: Application, fields: dict[str, Any]) -> list[Any]:
    """Texts as they are, the contents of pictures and sounds. Where a model takes pictures and texts, a string is a
    text."""
    given, takes = _taken(fields, "inputs", list), application.model.takes
    if takes == TEXTS:
        return given
    return [each if "_and_" in takes and isinstance(each, str) else _content(application, each) for each in given]


def _content(application: Application, given: Any) -> bytes:
    """The bytes of a picture or a sound: of base64 in ``{"data": ...}``, or of the file that a path names."""
    if isinstance(given, dict) and isinstance(given.get("data"), str):
        return base64.b64decode(given["data"], validate=True)
    if isinstance(given, str) and application.opens_files:
        try:
            return Path(given).read_bytes()
        except OSError as error:
            raise FileAccessError("E-IO-OPEN", given, error.strerror or str(error)) from error
    expected = '{"data": base64}' + (" or a path" if application.opens_files else "")
    raise UsageError("E-BUNDLE-FIELD", None, "an input is neither a picture nor a sound", expected=expected)


OPERATIONS: Mapping[str, Callable[[Application, dict[str, Any]], dict[str, Any]]] = {
    "run": _run,
    "generate": _generate,
    "embed": _embed,
    "predict": _predict,
    "transcribe": _transcribe,
}
"""By name: the fields of a request, and what an answer holds.

- run: inputs, an object of arrays by name; outputs.
- generate: prompt, and options of sampling such as max_tokens, temperature and seed; text.
- embed: inputs, a list; vectors.
- predict: inputs, and options of the task such as top; results.
- transcribe: audio; text and segments.

Pictures and sounds are ``{"data": base64}``, or paths in requests that do not come over HTTP.
"""


def answered(application: Application, line: str | bytes) -> tuple[str, bool]:
    """The answer to a request, or its error, both as JSON; whether it is an answer."""
    try:
        if len(line) > LARGEST_REQUEST:
            raise LimitError("E-BUNDLE-LENGTH", None, f"a request has {LARGEST_REQUEST:,} bytes at most")
        return _json(application.answer(json.loads(line))), True
    except Error as error:
        return _json({"error": error.to_json()}), False
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        failed: Error = UsageError("E-BUNDLE-FIELD", None, f"the request cannot be answered: {error}")
    except ImportError as error:
        why = f"the bundle lacks {error.name}, which this request needs"
        hint = "Install it, or make the bundle again with --request for such a request"
        failed = UnsupportedError("E-BUNDLE-LACKS", None, why, hint=hint)
    return _json({"error": failed.to_json()}), False


def _json(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def answer_lines(application: Application, lines: Iterable[bytes], write: Callable[[str], object]) -> int:
    """Answer each line of standard input by one of standard output; 1 if an answer is an error."""
    code = 0
    for line in lines:
        if line.strip():
            answer, done = answered(application, line)
            write(f"{answer}\n")
            code = code if done else 1
    return code


def serve(application: Application, address: str) -> int:
    """Answer ``POST /OPERATION`` until the process is interrupted; ``GET /health`` says what there is."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    host, _, port = address.rpartition(":")
    is_local = _is_loopback(host or "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            found = self.path == "/health"
            self._send(200 if found else 404, _json({"operations": application.operations}))

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if self.headers.get_content_type() != "application/json":  # a browser asks before it sends this type
                self._refuse(415, "the content type is not application/json")
                return
            if not _is_loopback(self.headers.get("Host", "")) and is_local:
                self._refuse(403, "the Host is not localhost")
                return
            if not (length.isascii() and length.isdigit() and len(length) < 10) or int(length) > LARGEST_REQUEST:
                self._refuse(411, f"Content-Length says no length of at most {LARGEST_REQUEST:,} bytes")
                return
            body = self.rfile.read(int(length))
            try:
                request = {**json.loads(body), "op": self.path.strip("/")}
            except (TypeError, ValueError, RecursionError):
                self._refuse(400, "the body is no JSON object")
                return
            answer, done = answered(application, json.dumps(request))
            self._send(200 if done else 400, answer)

        def _refuse(self, status: int, why: str) -> None:
            self._send(status, _json({"error": UsageError("E-BUNDLE-HTTP", None, why).to_json()}))

        def _send(self, status: int, answer: str) -> None:
            data = answer.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    application.opens_files = False
    with ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler) as server:
        place = f"http://{server.server_address[0]!s}:{server.server_address[1]}"
        print(f"{place}  POST /{' /'.join(application.operations)}", file=sys.stderr, flush=True)
        server.serve_forever()
    return 0


def _is_loopback(host: str) -> bool:
    """Whether an address, with or without a port, is this machine's own: other names are those of web pages."""
    name = host.rpartition(":")[0] or host
    return name in ("localhost", "127.0.0.1", "[::1]", "::1")


def best(variants: Sequence[isa.Variant]) -> isa.Variant:
    """The last of some variants that this processor can run. UnsupportedError if it can run none."""
    levels = isa.available_levels()
    able = [variant for variant in variants if variant.features <= isa.present() and variant.level in levels]
    if not able:
        names = " or ".join(variant.name for variant in variants)
        hint = "Make the bundle with --cpu for this processor"
        raise UnsupportedError("E-BUNDLE-CPU", None, "no machine code for this processor", expected=names, hint=hint)
    return able[-1]


def main(folder: str, arguments: Sequence[str]) -> int:
    """Run the bundle in a folder; returns the exit code."""
    manifest = json.loads(Path(folder, MANIFEST).read_text(encoding="utf-8"))
    if arguments and (arguments[0] != "--http" or len(arguments) != 2 or not arguments[1].rpartition(":")[2].isdigit()):
        print(f"{USAGE} {json.dumps(manifest['example'], ensure_ascii=False)}", file=sys.stderr)
        return 0 if arguments[0] in ("-h", "--help") else 2
    try:
        chosen = best([each for each in isa.VARIANTS if each.name in manifest["variants"]])
        os.environ[isa.VARIANT_VARIABLE] = chosen.name
        application = Application(str(Path(folder, manifest["model"])))
    except Error as error:
        print(f"✗ {error}", file=sys.stderr)
        return error.exit_code

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        return serve(application, arguments[1]) if arguments else answer_lines(application, sys.stdin.buffer, write)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (OSError, OverflowError) as error:
        print(f"✗ E-IO  {' '.join(arguments)}: {error}", file=sys.stderr)
        return 7
