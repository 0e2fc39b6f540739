"""Generating with a tiny Llama whose file is made here: what ends a text, batches, commands, and files that cannot
generate."""

import io
import json
import sys
import time

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.generate import StopStringFilter, Timing
from candle_convert.runtime.base.compile_progress import compile_time
from candle_convert.tests.builders.tiny_llama import TOKENS, written


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return written(tmp_path_factory.mktemp("generate") / "m.gguf")


@pytest.fixture(scope="module")
def model(path):
    return models.load(path, threads=1)


def test_greedy_is_the_likeliest_token_again_and_again(model):
    ids = model.tokenizer.encode("Hello there")
    made = model.generate_batch(["Hello there"], max_tokens=20, temperature=0)[0]
    want = list(ids)
    while len(want) < len(ids) + len(made.tokens):
        want.append(int(model.logits(want)[0, -1, : len(TOKENS)].argmax()))
    assert made.tokens == want[len(ids) :] == model.greedy(ids, len(made.tokens))
    assert made.reason in ("length", "end")
    assert made.text == model.tokenizer.decode(want)[len(model.tokenizer.decode(ids)) :]


def test_sequences_of_a_batch_are_those_that_they_are_alone(model):
    prompts = ["A", "Hello there", "some more text than the others have"]
    together = model.generate_batch(prompts, max_tokens=15, seed=4)
    assert together[0].text == model.generate(prompts[0], max_tokens=15, seed=4)
    again = model.generate_batch(prompts, max_tokens=15, seed=4)
    assert [made.tokens for made in again] == [made.tokens for made in together]
    greedy = [model.generate(prompt, max_tokens=15, temperature=0) for prompt in prompts]
    assert [made.text for made in model.generate_batch(prompts, max_tokens=15, temperature=0)] == greedy


def test_a_stop_text_ends_it_and_is_left_out(model):
    whole = model.generate("Hello", max_tokens=40, seed=1)
    stop = whole[7:11]
    pieces = []
    made = model.generate_batch(
        ["Hello"], max_tokens=40, seed=1, stop=[stop], on_text=lambda row, text: pieces.append(text)
    )[0]
    assert made.reason == "stop"
    assert made.text == whole[: whole.index(stop)] == "".join(pieces)


def test_stops_hold_back_what_may_begin_one():
    stops = StopStringFilter(["END", "###"])
    assert stops.push("abcE") == ("abc", False)
    assert stops.push("N") == ("", False)
    assert stops.push("Ex") == ("ENEx", False)
    assert stops.push("##") == ("", False)
    assert stops.push("#END") == ("", True)
    stops = StopStringFilter(["aab"])
    assert stops.push("aaa") == ("a", False)
    assert stops.finish() == "aa"
    assert StopStringFilter([""]).push("text") == ("text", False)


def test_a_long_text_crosses_rooms_and_ends_with_the_context(model):
    made = model.generate_batch(["x" * 230], max_tokens=500, seed=2)[0]
    assert made.reason in ("context", "end")
    assert len(made.prompt) + len(made.tokens) <= 300
    longer = model.generate_batch(["x" * 290], max_tokens=30, seed=2, context=320, temperature=0)[0]
    logits = model.logits([*longer.prompt, *longer.tokens])[0, len(longer.prompt) - 1 : -1, : len(TOKENS)]
    assert longer.tokens == list(logits.argmax(1))


def test_what_cannot_be_generated(model, tmp_path):
    for prompt, options, code in (
        ("x" * 400, {}, "E-LM-CONTEXT"),
        ([], {}, "E-LM-PROMPT"),
        ("a", {"heat": 2}, "E-SAMPLE-OPTION"),
    ):
        with pytest.raises(cc.UsageError) as error:
            model.generate(prompt, **options)
        assert error.value.code == code
    few = models.load(written(tmp_path / "m.gguf", vocabulary=300, **{"llama.vocab_size": np.uint32(300)}))
    with pytest.raises(cc.FormatError) as error:
        few.generate("a")
    assert error.value.code == "E-LM-VOCABULARY"


def test_command(path, capsys, monkeypatch):
    words = ["generate", str(path), "--seed", "3", "--max-tokens", "12", "--threads", "1"]
    assert run([*words, "-p", "Hello", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "candle-convert/generate/1"
    assert len(said["tokens"]) <= 12
    assert said["timings"]["generated_per_second"] > 0
    assert run([*words, "-p", "Hello"]) == 0
    shown, told = capsys.readouterr()
    assert "prompt tokens at" in told
    assert "prompt tokens at" not in shown
    assert said["text"].split("\n")[0].rstrip("\x7f") in shown or not said["text"].isprintable()
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    assert run([*words, "-p", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == said["tokens"]
    assert run([*words, "-p", "x<|nothing|>", "--context", "900", "-n", "295"]) == 0
    assert {"W-TOKENIZER-MARKER", "W-LM-CONTEXT"} <= {
        word for word in capsys.readouterr().err.split() if word.startswith("W-")
    }
    assert run([*words, "-p", "x<|nothing|>", "--json"]) == 0
    assert [note["code"] for note in json.loads(capsys.readouterr().out)["warnings"]] == ["W-TOKENIZER-MARKER"]


def test_command_with_a_chat_template(tmp_path, capsys):
    template = (
        "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
    )
    path = written(tmp_path / "m.gguf", **{"tokenizer.chat_template": template})
    words = ["generate", str(path), "-n", "5", "--temp", "0", "--threads", "1", "--json"]
    assert run([*words, "-p", "Hi", "--chat", "--system", "Be kind"]) == 0
    chat = json.loads(capsys.readouterr().out)
    assert run([*words, "-p", "system: Be kind\nuser: Hi\nassistant:"]) == 0
    assert {**chat, "timings": 0} == {**json.loads(capsys.readouterr().out), "timings": 0}
    assert run([*words, "-p", "Hi", "--system", "Be kind"]) == 2
    bare = [*words[:1], str(written(tmp_path / "m.gguf")), *words[2:], "-p", "Hi", "--chat"]
    assert run(bare) == 4
    (tmp_path / "t.jinja").write_text(template)
    capsys.readouterr()
    assert run([*bare, "--system", "Be kind", "--chat-template", str(tmp_path / "t.jinja")]) == 0
    assert {**chat, "timings": 0} == {**json.loads(capsys.readouterr().out), "timings": 0}


def test_onnx_goes_with_its_tokenizer(path, tmp_path, capsys):
    words = ["-p", "Hello there", "-n", "5", "--temp", "0", "--threads", "1", "--json"]
    assert run(["generate", str(path), *words]) == 0
    wanted = json.loads(capsys.readouterr().out)
    file, folder, bare = tmp_path / "m.onnx", tmp_path / "folder", tmp_path / "bare" / "m.onnx"
    for output, options in ((file, []), (folder, []), (bare, ["--no-tokenizer"])):
        assert run(["convert", str(path), str(output), "--to", "onnx", "-q", *options]) == 0
    for source in (file, folder, folder / "model.onnx"):
        assert run(["generate", str(source), *words]) == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["prompt"], made["tokens"], made["text"]) == (wanted["prompt"], wanted["tokens"], wanted["text"])
    assert run(["generate", str(bare), *words]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "E-TOKENIZER-NONE"
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("llama", len(TOKENS))
    assert run(["convert", str(folder), str(tmp_path / "weights.gguf"), "--json"]) == 0
    assert "W-NODES" in {note["code"] for note in json.loads(capsys.readouterr().out)["warnings"]}


@pytest.mark.parametrize(
    ("changes", "code", "exit_code"),
    [
        ({"name": "lama"}, "E-ARCH", 4),
        ({"llama.attention.head_count": np.uint32(0)}, "E-ARCH", 3),
        ({"vocabulary": 300}, "E-ARCH-SHAPE", 3),
    ],
    ids=str,
)
def test_files_that_cannot_generate(tmp_path, capsys, changes, code, exit_code):
    path = written(tmp_path / "m.gguf", **changes)
    assert run(["generate", str(path), "-p", "a", "--json"]) == exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"].startswith(code)
    assert exit_code != 4 or "llama" in error["hint"]


def test_compiling_is_no_part_of_tokens_per_second(model, monkeypatch):
    advance = model.advance

    def compiling(*arguments, **options):
        with compile_time(1):
            time.sleep(0.5)
        return advance(*arguments, **options)

    monkeypatch.setattr(model, "advance", compiling)
    timing = Timing()
    model.generate_batch(["Hello"], max_tokens=3, temperature=0, timing=timing)
    assert timing.prompt_seconds < 0.5
    assert timing.generated_seconds < 0.5
