"""Servers of models in processes of their own, and models that chat."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

from candle_convert.tests.builders.paths import EXAMPLES

TEMPLATE = """\
{%- if tools %}Tools: <tool_call> {{ tools | tojson }}
{% endif -%}
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor -%}
{%- if add_generation_prompt %}assistant:{% endif -%}
"""
READY_SECONDS = 300


class Started:
    """A running server.

    Attributes:
        process: of the server.
        address: such as ``http://127.0.0.1:40123``.
        port: of the address.
        ready: what the command printed as JSON.
    """

    def __init__(self, process, ready):
        self.process, self.ready = process, ready
        self.address = ready["address"]
        self.port = int(self.address.rpartition(":")[2])

    def stop(self, number=signal.SIGTERM):
        """Send a signal."""
        self.process.send_signal(number)


@contextlib.contextmanager
def serving(words, stderr=None):
    """A server of the models and options in `words`, at a free port, for the block."""
    command = [sys.executable, "-m", "candle_convert.convert", "serve", *map(str, words), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ})
    try:
        line = process.stdout.readline()
        assert line, f"{command} ended with {process.wait()}"
        yield Started(process, json.loads(line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def request(server, path, body=None, headers=(), data=None, timeout=120):
    """Status, headers and content of an answer; `body` is sent as JSON, `data` as it is."""
    sent = data if body is None else json.dumps(body).encode()
    made = urllib.request.Request(server.address + path, sent, {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(made, timeout=timeout) as answer:
            return answer.status, _lowered(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lowered(error.headers), error.read()


def _lowered(headers):
    return {name.lower(): value for name, value in headers.items()}


def chat_model(folder, template=TEMPLATE):
    """A copy of the example's language model with a chat template."""
    shutil.copytree(EXAMPLES / "tiny_llama", folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder
