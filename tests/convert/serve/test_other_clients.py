"""Clients apart from OpenAI's own: LangChain's class of it, and curl without buffering."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip("uvicorn", reason="the server needs uvicorn, of the extra serve")
from candle_convert.tests.builders.model_server import chat_model, request, serving

QUESTION = "Who spoke?"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    words = [chat_model(tmp_path_factory.mktemp("clients") / "chat"), "--threads", "1"]
    with serving(words) as started:
        yield started


def answer(server, **options):
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 8, **options}
    return json.loads(request(server, "/v1/chat/completions", body)[2])["choices"][0]["message"]["content"]


def test_langchain(server):
    langchain = pytest.importorskip("langchain_openai", reason="LangChain's class is the client")
    address = f"{server.address}/v1"
    chat = langchain.ChatOpenAI(model="chat", base_url=address, api_key="none", temperature=0, max_tokens=8)
    wanted = answer(server)
    made = chat.invoke(QUESTION)
    assert (made.content, made.usage_metadata["output_tokens"]) == (wanted, 8)
    pieces = [piece.content for piece in chat.stream(QUESTION)]
    assert "".join(pieces) == wanted
    assert len(pieces) > 5
    completing = langchain.OpenAI(model="chat", base_url=address, api_key="none", temperature=0, max_tokens=4)
    assert len(completing.batch(["And God", "In the"])) == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is the client")
def test_curl(server):
    body = {"prompt": "And God said", "max_tokens": 8, "temperature": 0, "stream": True}
    command = ["curl", "-sN", f"{server.address}/v1/completions", "-H", "Content-Type: application/json", "-d"]
    lines = subprocess.run([*command, json.dumps(body)], capture_output=True, text=True, check=True).stdout.splitlines()
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
    whole = json.loads(request(server, "/v1/completions", {**body, "stream": False})[2])["choices"][0]["text"]
    assert text == whole
