"""A served model as a process: hang-ups, limits of the queue, keys, hosts, and signals."""

import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn", reason="the server needs uvicorn, of the extra serve")
from candle_convert import models
from candle_convert.models.generation.batching.model_rows import decoding_rows
from candle_convert.tests.builders.model_server import request, serving
from candle_convert.tests.builders.paths import EXAMPLES

MODEL = EXAMPLES / "tiny_llama"
LONG = {"prompt": "And God said", "max_tokens": 480, "temperature": 0, "logit_bias": {"2": -100}}
"""A request that runs for a while: the end token cannot come."""


@pytest.fixture(scope="module")
def small():
    """A server with two rows, and one request that may wait."""
    with serving([MODEL, "--parallel", "2", "--queue", "1", "--threads", "1"]) as server:
        yield server


def metric(server, name):
    lines = request(server, "/metrics")[2].decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"candle_convert_{name} ")).split()[1])


def stream(server, body, until=b"data: "):
    """A socket on which a stream has begun."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    content = json.dumps({**body, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    received = b""
    while until not in received:
        received += connection.recv(4096)
    return connection


def eventually(true):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return False


def test_a_client_that_hangs_up_frees_its_row(small):
    one, two = stream(small, LONG), stream(small, LONG)
    assert metric(small, "running_texts") == 2
    one.close()
    assert eventually(lambda: metric(small, "running_texts") == 1)
    assert metric(small, 'tokens_total{kind="completion"}') < 480
    two.close()
    assert eventually(lambda: metric(small, "active_requests") == 0)


def test_max_memory():
    """KV caches take half of what --max-memory leaves beyond the weights: of four long requests two run, none is
    lost."""
    model = models.load(MODEL)
    weights = sum(tensor.nbytes for tensor in model.graph.weights.values())
    whole = 512 * decoding_rows(model, 1, 512, None).states.token_nbytes
    words = [MODEL, "--parallel", "4", "--max-memory", str(weights + 2 * (2 * whole + 1)), "--threads", "1"]
    with serving(words) as server, ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(request, server, "/v1/completions", LONG) for _ in range(4)]
        running = []
        while not all(answer.done() for answer in answers):
            running.append(metric(server, "running_texts"))
        assert [json.loads(answer.result()[2])["usage"]["completion_tokens"] for answer in answers] == [480] * 4
    assert max(running) == 2


def test_seconds_of_streams_count_until_their_end(small):
    name = 'request_seconds_count{endpoint="/v1/completions"}'
    stream(small, {**LONG, "max_tokens": 1}, b"[DONE]").close()  # makes the metric
    assert eventually(lambda: metric(small, "active_requests") == 0)
    before = metric(small, name)
    connection = stream(small, LONG)
    assert metric(small, name) == before
    connection.close()
    assert eventually(lambda: metric(small, name) == before + 1)


def test_a_client_that_hangs_up_before_its_answer_frees_its_row(small):
    connection = socket.create_connection(("127.0.0.1", small.port))
    content = json.dumps(LONG).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    assert eventually(lambda: metric(small, "running_texts") == 1)
    connection.close()
    assert eventually(lambda: metric(small, "active_requests") == 0)


def test_a_full_queue_answers_429(small):
    held = [stream(small, LONG) for _ in range(2)]
    queued = ThreadPoolExecutor(1).submit(request, small, "/v1/completions", {**LONG, "max_tokens": 1})
    assert eventually(lambda: metric(small, "active_requests") == 3)
    status, headers, content = request(small, "/v1/completions", LONG)
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(content)["error"]["type"] == "rate_limit_error"
    for each in held:
        each.close()
    assert queued.result(60)[0] == 200


def test_time_is_limited():
    with serving([MODEL, "--timeout", "0.2", "--threads", "1"]) as server:
        status, _, content = request(server, "/v1/completions", {**LONG, "n": 8})
        assert (status, json.loads(content)["error"]["code"]) == (504, "timeout")
        assert eventually(lambda: metric(server, "running_texts") == 0)


def test_first_signal_finishes_what_runs():
    with serving([MODEL, "--threads", "1", "--grace", "60"]) as server:
        connection = stream(server, {**LONG, "max_tokens": 200})
        server.stop()
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        assert b'"finish_reason":"length"' in received
        assert b"[DONE]" in received
        assert server.process.wait(60) == 0
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_grace_ends(tmp_path):
    log = tmp_path / "stderr"
    words = [MODEL, "--threads", "1", "--grace", "1", "--parallel", "16"]
    with log.open("wb") as stderr, serving(words, stderr) as server:
        held = [stream(server, {**LONG, "n": 8}) for _ in range(2)]
        begun = time.monotonic()
        server.stop()
        server.process.wait(60)
        assert time.monotonic() - begun < 20
        for each in held:
            each.close()
    assert "Traceback" not in log.read_text()


def test_second_signal_stops_at_once():
    with serving([MODEL, "--threads", "1", "--grace", "600"]) as server:
        connection = stream(server, {**LONG, "n": 16})
        server.stop()
        time.sleep(0.2)
        server.stop(signal.SIGINT)
        assert server.process.wait(10) == 143
        connection.close()


def test_keys(tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("# those of the team\nfirst-key\n  second-key \nclé-à\n", encoding="utf-8")
    with serving([MODEL, "--host", "0.0.0.0", "--api-key-file", keys, "--threads", "1"]) as server:
        server.address = f"http://127.0.0.1:{server.port}"
        for key, status in (("first-key", 200), ("second-key", 200), ("# those of the team", 401), ("first-ke", 401)):
            assert request(server, "/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == status
        sent = "clé-à".encode().decode("latin-1")  # the client sends the bytes of UTF-8
        assert request(server, "/v1/models", headers={"Authorization": f"Bearer {sent}"})[0] == 200
        status, headers, content = request(server, "/v1/completions", {"prompt": "x"})
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(content)["error"]["code"] == "invalid_api_key"
        assert request(server, "/health")[0] == request(server, "/")[0] == 200
        assert request(server, "/metrics")[0] == 401


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--host", "192.0.2.1", "--api-key-file", "keys"], "cannot listen at 192.0.2.1"),
        (["--host", "a..b", "--api-key-file", "keys"], "cannot listen at a..b"),
        (["--api-key-file", "empty"], "holds no key"),
        (["--alias", "a", "--alias", "b"], "more names by --alias than models"),
        ([MODEL], "two models are called tiny_llama"),
    ],
)
def test_refused_before_models_are_loaded(words, why, tmp_path):
    (tmp_path / "keys").write_text("key")
    (tmp_path / "empty").write_text("# no key\n")
    command = [sys.executable, "-m", "candle_convert.convert", "serve", str(MODEL), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (2, 7)
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
