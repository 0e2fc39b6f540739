"""Hostile requests beside good ones: each gets a 4xx, none a 500, and no good request fails."""

import json
import random
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn", reason="the server needs uvicorn, of the extra serve")
from candle_convert.tests.builders.model_server import chat_model, request, serving
from candle_convert.tests.builders.packaged_models import minilm

COUNT = 500
GOOD = [
    ("/v1/completions", {"model": "chat", "prompt": "And God said", "max_tokens": 6, "temperature": 0}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0}),
    ("/v1/embeddings", {"model": "minilm", "input": ["A cat naps.", "Taxes rise."]}),
    ("/rerank", {"model": "minilm", "query": "cats", "texts": ["A cat naps.", "Taxes rise."]}),
]
JUNK = [
    None,
    True,
    -1,
    10**400,
    1.5,
    1e308,
    "",
    "x" * 5000,
    [],
    [[]],
    [None],
    {},
    {"a": {"b": []}},
    "\ud800",
    "\x00",
    "é" * 99,
]
"""Values of every type, of which some are wrong for each field."""
PATHS = [path for path, _ in GOOD] + ["/v1/rerank", "/embed", "/predict", "/v1/audio/speech", "/v1/images/generations"]
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = chat_model(tmp_path_factory.mktemp("hostile") / "chat")
    log = tmp_path_factory.mktemp("log") / "stderr"
    with log.open("wb") as stderr:
        words = [folder, minilm(), "--alias", "chat", "--alias", "minilm", "--max-body", "200000", "--threads", "1"]
        with serving(words, stderr) as started:
            started.log = log
            yield started


def raw(server, *parts, delay=0.0, half=False, reset=False):
    """The status that a socket gets for bytes, None where the server closes without an answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(delay)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return None
            if half:
                connection.shutdown(socket.SHUT_WR)
            received = connection.recv(65536)
        except (ConnectionError, TimeoutError):
            return None
    match = STATUS.match(received)
    return int(match[1]) if match else None


def post(path, content, kind="application/json", length=None, more=""):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{more}"
    return f"{head}Content-Length: {len(content) if length is None else length}\r\n\r\n".encode() + content


def wrong_field(random, server):
    path, body = random.choice(GOOD)
    name = random.choice(
        [*body, "model", "n", "stream", "stop", "seed", "temperature", "logit_bias", "tools", "dimensions"]
    )
    value = random.choice(JUNK)
    status = request(server, path, data=json.dumps({**body, name: value}, allow_nan=True).encode())[0]
    return status if status != 200 else 400  # some values are right for some fields


def broken_json(random, server):
    path, body = random.choice(GOOD)
    text = json.dumps(body).encode()
    cut = random.randrange(1, len(text))
    mutated = random.choice([
        text[:cut], text[cut:], text[:cut] + b"\xff" + text[cut:], text.replace(b":", b"=", 1), text + b"}", b"",
        b"\x00", b'{"prompt": NaN}', b'{"prompt": 1, "prompt": 2}', b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"),
        b'"' + b"\\" * 999, b"9" * 9999, b"[" * 100_000, b'{"a":' * 50_000, b'{"messages": "\\ud800"}',
    ])  # fmt: skip
    return request(server, path, data=mutated)[0]


def wrong_type(random, server):
    path, body = random.choice(GOOD)
    kind = random.choice(["text/plain", "application/xml", "multipart/form-data", "", "application/json/x", "*/*"])
    return request(server, path, body, {"Content-Type": kind})[0]


def broken_form(random, server):
    content = random.choice(
        [b"", b"--x", b"--x\r\n\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--", b"\xff" * 99]
    )
    kind = random.choice(["multipart/form-data; boundary=x", "multipart/form-data", "multipart/form-data; boundary="])
    return request(server, "/v1/audio/transcriptions", data=content, headers={"Content-Type": kind})[0]


def huge(random, server):
    path = random.choice(PATHS)
    return random.choice([
        lambda: raw(server, post(path, b"", length=10**12)),
        lambda: raw(server, post(path, b'{"prompt": "' + b"x" * 300_000 + b'"}')),
        lambda: raw(server, post(path, b"x", length="99999999999999999999999")),
    ])()  # fmt: skip


def chunked(random, server):
    head = post("/v1/completions", b"", more="Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"")
    return raw(
        server, head, random.choice([b"zz\r\n", b"40000\r\n" + b"x" * 0x40000 + b"\r\n0\r\n\r\n", b"-1\r\nx\r\n"])
    )


def broken_http(random, server):
    content = random.choice([
        b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 90_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % each for each in range(9000)) + b"\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", b"GET / HTTP/1.1\r\nHost: [::\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        post("/v1/completions", b"{}", length=-5), post("/v1/completions", b"{}", more="Content-Length: 9\r\n"),
        b"BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ])  # fmt: skip
    return raw(server, content, half=True)


def slow_or_gone(random, server):
    content = post("/v1/completions", json.dumps(GOOD[0][1]).encode(), length=4000)
    part = random.randrange(1, len(content))
    return random.choice([
        lambda: raw(server, content[:part], half=True),
        lambda: raw(server, content, reset=True),
        lambda: raw(server, content[:part], reset=True),
        lambda: raw(server, content[:part], content[part:], delay=0.3, half=True),
    ])()  # fmt: skip


def media(random, server):
    url = random.choice([
        "http://127.0.0.1:9/x.png", "https://example.com/x.png", "file:///etc/passwd", "/etc/passwd",
        "data:", "data:image/png;base64,", "data:image/png;base64,!!!!", "data:image/png,abc", "ftp://x",
    ])  # fmt: skip
    part = random.choice([{"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url},
                          {"type": "input_audio", "input_audio": {"data": url}}, {"type": url}])  # fmt: skip
    return request(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})[0]


def strange_messages(random, server):
    message = random.choice([
        {"role": "user"}, {"role": "tool", "content": 3}, {"content": "x"}, {"role": ["user"], "content": "x"},
        {"role": "assistant", "tool_calls": [{"function": 3}]}, {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
        {"role": "user", "content": [[]]}, {"role": "user", "content": [{"type": "text", "text": None}]},
        {"role": "user", "content": "x", "name": 3},
    ])  # fmt: skip
    return request(server, "/v1/chat/completions", {"messages": [message]})[0]


def wrong_address(random, server):
    path = random.choice(
        ["/v1", "/v1/completions/", "/v1/models/none", "/.env", "/docs/../../etc/passwd", "/%2e%2e/%2e%2e"]
    )
    host = random.choice(["localhost", "evil.example", "localhost.evil.example", "127.0.0.1@evil", ""])
    return request(server, path, headers={"Host": host})[0]


KINDS = [wrong_field, broken_json, wrong_type, broken_form, huge, chunked, broken_http, slow_or_gone, media,
         strange_messages, wrong_address]  # fmt: skip


def test_hostile_requests_beside_good_ones(server):
    def good(number):
        path, body = GOOD[number % len(GOOD)]
        status, _, content = request(server, path, body)
        return path, status, _answered(json.loads(content))

    def hostile(number):
        kind = KINDS[number % len(KINDS)]
        return kind.__name__, number, kind(random.Random(number), server)

    alone = {path: content for path, _, content in map(good, range(len(GOOD)))}
    with ThreadPoolExecutor(8) as bad, ThreadPoolExecutor(4) as fine:
        answers = [bad.submit(hostile, number) for number in range(COUNT)]
        kept = [fine.submit(good, number) for number in range(COUNT // 5)]
        for future in kept:
            path, status, content = future.result(300)
            assert status == 200
            assert content == pytest.approx(alone[path], abs=1e-5)
        for future in answers:
            kind, number, status = future.result(300)
            assert status is None or 400 <= status < 500, (kind, number, status)
    assert server.process.poll() is None
    assert server.log.read_text() == ""
    assert [good(number)[1] for number in range(len(GOOD))] == [200] * len(GOOD)


def _answered(found):
    """What every answer to a request holds: texts, or the numbers of vectors and scores, which batches may round."""
    if isinstance(found, list):
        return [row["score"] for row in found]
    if "choices" in found:
        return [str(choice.get("text") or choice.get("message")) for choice in found["choices"]]
    return [number for row in found["data"] for number in row["embedding"]]


def test_slow_bodies_end(tmp_path):
    """A client that sends a byte now and then gets 408; the time of the server's setting is made short here."""
    folder = chat_model(tmp_path / "chat")
    with serving([folder, "--threads", "1", "--body-timeout", "0.5"]) as server:
        content = post("/v1/completions", b'{"prompt": "x"', length=400)
        begun = time.monotonic()
        assert raw(server, content) == 408
        assert time.monotonic() - begun < 20
