"""Conversations reuse the KV cache and answer as a model would that reads everything anew; text streams; a terminal can
chat."""

import io
import itertools
import os
import pty
import select
import signal
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.models.generation.batching.offline import SpeculatedTurns
from candle_convert.models.generation.batching.speculation import Speculation
from candle_convert.models.generation.chat_template import prompt, writes_bos
from candle_convert.models.generation.conversation import Conversation
from candle_convert.models.generation.sampling import Sampling
from candle_convert.tests.builders.tiny_llama import TOKENS, written
from candle_convert.tests.oracles.transformers import Case, made

TEMPLATE = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}<assistant>"
PATIENCE = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("talk")


@pytest.fixture(scope="module")
def chatty(folder):
    return written(folder / "chat.gguf", **{"tokenizer.chat_template": TEMPLATE})


@pytest.fixture(scope="module")
def model(chatty):
    return models.load(chatty, threads=1, activations="f32")


def logits(model, ids):
    return model.logits(ids)[0, -1, : len(TOKENS)]


def test_a_cache_goes_back_to_where_it_was(model):
    ids = model.tokenizer.encode("one two three four")
    cache = model.start(1)
    model.advance([ids], cache)
    for token in model.tokenizer.encode("xyz", add_bos=False):
        model.advance([[token]], cache)
    assert not model.rewind(cache, cache.length + 1)
    assert model.rewind(cache, 7)
    other = [*ids[:7], *model.tokenizer.encode("five six", add_bos=False)]
    found = model.advance([other[7:]], cache)[0, : len(TOKENS)]
    assert cache.length == len(other)
    assert np.abs(found - logits(model, other)).max() < 1e-3 * np.abs(found).max()


def test_exported_caches_that_grow_go_back_too(chatty, folder):
    cc.convert(chatty, folder / "m.onnx", to="onnx", force=True)
    exported = models.load(folder / "m.onnx", threads=1, activations="f32")
    cache = exported.start(1)
    exported.advance([[1, 300, 301, 302, 303]], cache)
    assert exported.rewind(cache, 2)
    found = exported.advance([[310, 311]], cache)[0]
    wanted = exported.logits([1, 300, 310, 311])[0, -1]
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "sliding_window": 8,
    "max_position_embeddings": 64,
}
MAMBA = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "state_size": 8,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "expand": 2,
    "time_step_rank": 4,
    "use_bias": False,
    "use_conv_bias": True,
}


@pytest.mark.parametrize("config", [MISTRAL, MAMBA], ids=["sliding-window", "recurrent"])
def test_states_that_cannot_go_back_say_so(config, tmp_path):
    made(Case(config["model_type"], config["architectures"][0], config), 0, tmp_path)
    stateful = models.load(tmp_path, threads=1)
    cache = stateful.start(1)
    stateful.advance([[5, 6, 7, 8]], cache)
    assert stateful.rewind(cache, 4)
    assert not stateful.rewind(cache, 3)
    assert cache.length == 4


def test_answers_are_those_of_the_whole_prompt_read_anew(model):
    talk = Conversation(model, Sampling(temperature=0), system="Be brief", max_tokens=9)
    read = []
    for text in ("Hello", "and then?", "why"):
        messages = [*talk.messages, {"role": "user", "content": text}]
        whole = prompt(model.tokenizer, messages)
        ids = model.tokenizer.encode(whole, add_bos=not writes_bos(model.tokenizer, whole))
        answer = "".join(talk.say(text))
        assert answer == model.generate(ids, max_tokens=9, temperature=0)
        assert talk.messages == [*messages, {"role": "assistant", "content": answer}]
        read.append((talk.timing.prompt_tokens, len(ids)))
    assert read[0][0] == read[0][1]
    assert all(new <= whole - before for (_, before), (new, whole) in itertools.pairwise(read)), read
    talk.clear()
    assert talk.messages == [{"role": "system", "content": "Be brief"}]


def test_a_turn_that_is_cut_short_leaves_the_conversation_as_it_was(model):
    talk = Conversation(model, Sampling(temperature=0), max_tokens=20)
    first = "".join(talk.say("Hello"))
    before = list(talk.messages)
    pieces = talk.say("more")
    next(pieces)
    pieces.close()
    assert talk.messages == before
    again = Conversation(model, Sampling(temperature=0), max_tokens=20)
    assert ["".join(again.say("Hello")), "".join(again.say("more"))] == [first, "".join(talk.say("more"))]
    asked = []
    stopped = "".join(talk.say("go on", stopped=lambda: bool(asked.append(0) or len(asked) > 4)))
    assert talk.messages[-1]["content"] == stopped
    assert len(asked) == 5


@pytest.mark.parametrize("drafted", [False, True])
def test_speculation_changes_no_answer(model, drafted):
    """Turns keep the caches of the model and of the draft: each computes its new tokens."""
    greedy = Sampling(temperature=0)
    speculation = Speculation(model if drafted else None, 3)
    answers = SpeculatedTurns(model, greedy, (), None, speculation)
    plain = Conversation(model, greedy, max_tokens=20)
    talk = Conversation(model, greedy, max_tokens=20, answers=answers)
    read = []
    for text in ("Hello, hello, hello", "hello, hello", "why"):
        whole = prompt(model.tokenizer, [*talk.messages, {"role": "user", "content": text}])
        length = len(model.tokenizer.encode(whole, add_bos=not writes_bos(model.tokenizer, whole)))
        assert "".join(talk.say(text)) == "".join(plain.say(text))
        assert talk.messages == plain.messages
        assert talk.timing.drafted_tokens > 0
        read.append((talk.timing.prompt_tokens, length))
    assert all(new <= whole - before for (_, before), (new, whole) in itertools.pairwise(read)), read
    stopped = "".join(talk.say("go on", stopped=lambda: True))
    assert talk.messages[-1]["content"] == stopped
    pieces = talk.say("more")
    next(pieces)
    pieces.close()
    assert talk.messages[-1]["content"] == stopped
    assert "".join(talk.say("again"))
    answers.close()


def test_a_full_context_is_said_and_changes_nothing(model):
    talk = Conversation(model, Sampling(temperature=0), max_tokens=5)
    with pytest.raises(cc.UsageError, match="E-LM-CONTEXT"):
        talk.say("x" * 400)
    assert talk.messages == []
    assert "".join(talk.say("x"))


def test_streaming_gives_the_text_in_pieces(model):
    whole = model.generate("Hello", max_tokens=20, seed=1)
    pieces = list(model.generate("Hello", max_tokens=20, seed=1, stream=True))
    assert len(pieces) > 5
    assert "".join(pieces) == whole == model.generate("Hello", max_new_tokens=20, seed=1)
    stop = whole[4:6]
    assert "".join(model.generate("Hello", max_tokens=20, seed=1, stop=stop, stream=True)) == whole[: whole.index(stop)]
    for options, code in (
        ({"max_tokens": 3, "max_new_tokens": 4}, "E-SAMPLE-OPTION"),
        ({"temprature": 1}, "E-SAMPLE-OPTION"),
    ):
        with pytest.raises(cc.UsageError) as error:
            model.generate("Hello", stream=True, **options)
        assert error.value.code == code
    assert "temperature" in error.value.hint


def test_without_a_terminal_the_prompt_is_standard_input(chatty, capsys, monkeypatch):
    words = ["generate", str(chatty), "-n", "4", "--threads", "1", "--temp", "0"]
    assert run([*words, "-p", "Hello"]) == 0
    wanted = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    assert run(words) == 0
    assert capsys.readouterr().out == wanted
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run(words) == 2
    assert "E-LM-PROMPT" in capsys.readouterr().err


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words):
        self.end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "candle_convert.convert", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )
        os.close(theirs)

    def until(self, text):
        """What is shown up to `text`."""
        found = b""
        while text.encode() not in found:
            assert select.select([self.end], [], [], PATIENCE)[0], found
            try:
                found += os.read(self.end, 4096)
            except OSError:
                break
        return found.decode(errors="replace")

    def type(self, text):
        os.write(self.end, text.encode())

    def interrupt(self):
        """Type Ctrl-C until it shows: line editing loses one that comes just before it waits for a key."""
        for _ in range(PATIENCE):
            self.type("\x03")
            if select.select([self.end], [], [], 1)[0]:
                return

    def code(self):
        self.until("\0")
        return self.process.wait(PATIENCE)


@pytest.fixture
def terminal(chatty):
    made = Terminal("generate", str(chatty), "--threads", "1", "--temp", "0", "-n", "6")
    yield made
    made.process.kill()
    os.close(made.end)


def test_a_terminal_chats(terminal, model):
    wanted = Conversation(model, Sampling(temperature=0), max_tokens=6)
    assert "/exit" in terminal.until("> ")
    for text in ("Hello", "and then"):
        answer = "".join(wanted.say(text))
        terminal.type(f"{text}\n")
        shown = terminal.until("> ")
        assert all(letter in shown for letter in answer if letter.isascii() and letter.isalnum())
    terminal.type("/clear\n")
    terminal.until("> ")
    terminal.type("/exit\n")
    assert terminal.code() == 0


def test_the_end_of_input_ends_it(terminal):
    terminal.until("> ")
    terminal.type("abc")
    terminal.until("abc")
    terminal.interrupt()
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.code() == 0


def test_an_interrupt_stops_the_answer_alone(chatty):
    terminal = Terminal("generate", str(chatty), "--threads", "1", "--seed", "1", "-n", "200", "-c", "100000")
    terminal.until("> ")
    terminal.type("Hello\n")
    terminal.until("\n")
    terminal.process.send_signal(signal.SIGINT)
    terminal.until("> ")
    terminal.type("/exit\n")
    assert terminal.code() == 0
    os.close(terminal.end)
