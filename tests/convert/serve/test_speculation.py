"""Speculative decoding of a server and of ``generate``: the texts of a run without it, and counts of tokens."""

import json
import re
import subprocess
import sys

import pytest
from candle_convert import models
from candle_convert.tests.builders.model_server import request, serving
from candle_convert.tests.builders.paths import EXAMPLES

MODEL = EXAMPLES / "tiny_llama"
PROMPT = "And God said unto the king, and God said unto"


@pytest.fixture(scope="module")
def text():
    return models.load(MODEL, threads=1).generate(PROMPT, max_tokens=24, temperature=0)


@pytest.mark.parametrize("options", [("--speculate", 6), ("--draft", MODEL)])
def test_a_server(options, text):
    with serving([MODEL, *options]) as server:
        for _ in range(2):
            asked = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
            status, _, body = request(server, "/v1/completions", asked)
            answer = json.loads(body)
            assert (status, answer["choices"][0]["text"]) == (200, text)
        accepted = answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
        assert 0 < accepted < 24
        metrics = request(server, "/metrics")[2].decode()
        counts = {kind: float(count) for kind, count in re.findall(r'tokens_total{kind="(.*)"} (.*)', metrics)}
        assert counts["accepted"] == 2 * accepted <= counts["drafted"]


@pytest.mark.parametrize("options", [("--speculate", "6"), ("--draft", MODEL, "--speculate", "3")])
def test_a_command(options, text):
    words = [sys.executable, "-m", "candle_convert.convert", "generate", MODEL, "-p", PROMPT, "-n", "24"]
    done = subprocess.run([*words, "--temperature", "0", *options], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip("\n") == text.rstrip("\n")
    accepted, proposed = map(int, re.search(r"(\d+) of (\d+) proposed tokens accepted", done.stderr).groups())
    assert 0 < accepted <= proposed
