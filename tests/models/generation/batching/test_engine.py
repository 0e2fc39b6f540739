"""The engine on a tiny Llama: what its events, limits, cancellations and failures are."""

import threading

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.offline import generate_all
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.sampling import GREEDY, Sampling
from candle_convert.tests.builders.tiny_llama import TOKENS, written


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rows = len(TOKENS) + 6  # of the embedding, as padded ones have
    path = tmp_path_factory.mktemp("engine") / "m.gguf"
    return models.load(written(path, vocabulary=rows, **{"llama.vocab_size": np.uint32(rows)}), threads=1)


@pytest.fixture
def engine(model):
    made = Engine(model, parallel=4)
    yield made
    made.close()


def asked(model, text, count=12, **options):
    return Request(model.tokenizer.encode(text), count, **{"sampling": GREEDY, **options})


def test_more_requests_than_rows_get_the_tokens_of_a_lone_run(model, engine):
    prompts = [f"{'word ' * (number % 5)}Hello {number}" for number in range(11)]
    handles = [engine.submit(asked(model, prompt)) for prompt in prompts]
    for prompt, handle in zip(prompts, handles, strict=True):
        ids = model.tokenizer.encode(prompt)
        tokens = [event.token for event in handle]
        logits = model.logits([*ids, *tokens])[0, len(ids) - 1 : -1, : len(TOKENS)]
        assert tokens == list(logits.argmax(1))
        assert handle.finish_reason in ("length", "stop")
        assert (handle.usage.prompt_tokens, handle.usage.completion_tokens) == (len(ids), len(tokens))
    assert engine.queued == engine.running == 0


def test_listening(model, engine):
    """Listeners get every event in order, also those before they listened, and the end, without a thread of theirs."""
    before = threading.active_count()
    late, early = (engine.submit(asked(model, "Hello")) for _ in range(2))
    heard, ended = {late: [], early: []}, {late: threading.Event(), early: threading.Event()}

    def listener(handle):
        def hear(event):
            heard[handle].append((event, threading.current_thread()))
            if event is None:
                ended[handle].set()

        return hear

    early.listen(listener(early))
    assert ended[early].wait(60)
    while late.finish_reason is None:
        ended[late].wait(0.01)
    late.listen(listener(late))
    assert ended[late].wait(60)
    tokens = [event.token for event in engine.submit(asked(model, "Hello"))]
    for handle in (late, early):
        *events, (last, _) = heard[handle]
        assert [event.token for event, _ in events] == tokens
        assert last is None
    assert threading.active_count() == before
    assert {thread for _, thread in heard[late]} == {threading.current_thread()}


def test_settings_belong_to_a_request(model, engine):
    ids = model.tokenizer.encode("Hello")
    hot = Sampling(temperature=1.5)
    seeds = [engine.submit(Request(ids, 12, hot, seed=seed)) for seed in (1, 2, 1)]
    biased = engine.submit(asked(model, "Hello", logit_bias={70: 1e4}))
    whole = model.generate("Hello", max_tokens=12, temperature=0)
    stopped = engine.submit(asked(model, "Hello", stop=[whole[5:8]]))
    first, second, third = ([event.token for event in handle] for handle in seeds)
    assert first == third != second
    assert [event.token for event in biased] == [70] * 12
    assert stopped.text() == whole[: whole.index(whole[5:8])]
    assert stopped.finish_reason == "stop"


def test_log_probabilities_are_those_of_the_logits(model, engine):
    ids = model.tokenizer.encode("Hello there")
    (event,) = engine.submit(asked(model, "Hello there", 1, logprobs=3, logit_bias={70: 1e4}))
    logits = model.logits(ids)[0, -1, : len(TOKENS)].astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum())
    assert event.token == 70
    assert event.logprobs.token == pytest.approx(wanted[70], abs=1e-4)
    assert [token for token, _ in event.logprobs.top] == list(np.argsort(-wanted)[:3])
    assert [number for _, number in event.logprobs.top] == pytest.approx(np.sort(wanted)[:-4:-1], abs=1e-4)


def test_cancelled_requests_end_and_free_their_rows(model, engine):
    handles = [engine.submit(asked(model, "Hello", 250)) for _ in range(9)]
    for handle in handles[1:]:
        handle.cancel()
    assert len(list(handles[0])) > 0
    assert {handle.finish_reason for handle in handles if list(handle) is not None} <= {"length", "stop", "cancelled"}
    assert handles[-1].finish_reason == "cancelled"
    assert engine.submit(asked(model, "Hello", 3)).text() == model.generate("Hello", max_tokens=3, temperature=0)


def test_a_failing_request_leaves_the_others_alone(model, engine):
    class Failing:
        def apply(self, logits):
            raise ValueError("broken")

    broken = engine.submit(asked(model, "Hello", constraint=Failing()))
    good = engine.submit(asked(model, "Hello"))
    assert good.text() == model.generate("Hello", max_tokens=12, temperature=0)
    assert list(broken) == []
    assert (broken.finish_reason, str(broken.error)) == ("error", "broken")
    with pytest.raises(ValueError, match="broken"):
        broken.text()


def test_a_request_that_cannot_begin_frees_its_row(model):
    engine = Engine(model, parallel=1)
    broken = engine.submit(asked(model, "Hello", stop=3))
    with pytest.raises(TypeError):
        broken.text()
    assert broken.finish_reason == "error"
    assert engine.submit(asked(model, "Hello")).text() == model.generate("Hello", max_tokens=12, temperature=0)
    engine.close()


def test_a_failing_engine_ends_all_requests(model, monkeypatch):
    engine = Engine(model, parallel=1)

    submitted = threading.Event()

    def release(row, *, reusable=True):
        submitted.wait()
        raise ValueError("broken")

    monkeypatch.setattr(engine._rows, "release", release)
    handles = [engine.submit(asked(model, "Hello", 40)) for _ in range(3)]
    submitted.set()
    for handle in handles:
        with pytest.raises(ValueError, match="broken"):
            handle.text()
        assert handle.finish_reason == "error"
    with pytest.raises(cc.UsageError) as error:
        engine.submit(Request([1], 3))
    assert error.value.code == "E-ENGINE-CLOSED"
    engine.close()


def test_what_is_refused(model):
    engine = Engine(model, parallel=1, context=20)
    for request, code in (
        (Request([], 3), "E-LM-PROMPT"),
        (Request([1] * 21, 3), "E-LM-CONTEXT"),
        (Request([1, 10**6], 3), "E-LM-TOKEN"),
        (Request([1, len(model.tokenizer)], 3), "E-LM-TOKEN"),
        (Request([1], 3, logit_bias={len(model.tokenizer): 1.0}), "E-LM-TOKEN"),
        (Request([1], 3, logit_bias={-1: 1.0}), "E-LM-TOKEN"),
    ):
        with pytest.raises(cc.UsageError) as error:
            engine.submit(request)
        assert error.value.code == code
    handle = engine.submit(Request([40] * 15, None, GREEDY))
    assert len(list(handle)) <= 5
    for full in (Request([40], 0), Request([40] * 20, 3)):
        handle = engine.submit(full)
        assert (handle.text(), handle.finish_reason) == ("", "length")
    engine.close()
    with pytest.raises(cc.UsageError) as error:
        engine.submit(Request([1], 3))
    assert error.value.code == "E-ENGINE-CLOSED"


def test_close_finishes_what_runs_within_its_grace(model):
    engine = Engine(model, parallel=2)
    handles = [engine.submit(asked(model, "Hello", 5)) for _ in range(5)]
    engine.close(grace=60)
    assert {handle.text() for handle in handles} == {model.generate("Hello", max_tokens=5, temperature=0)}
    engine = Engine(model, parallel=2)
    handles = [engine.submit(asked(model, "Hello", 250)) for _ in range(5)]
    engine.close()
    assert "cancelled" in {handle.finish_reason for handle in handles}
    assert None not in {handle.finish_reason for handle in handles}


def test_many_threads_submit(model, engine):
    texts = []
    threads = [
        threading.Thread(target=lambda: texts.append(engine.submit(asked(model, "Hello", 6)).text())) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [model.generate("Hello", max_tokens=6, temperature=0)] * 12


def test_requests_wait_for_memory_and_none_is_lost(model, monkeypatch):
    _, dtypes = model.state_values()
    token = sum(64 * dtype.itemsize for dtype in dtypes.values())
    engine = Engine(model, parallel=8, max_memory=4 * 64 * token)
    running, decode = [], engine._decode

    def counting():
        running.append(engine.running)
        decode()

    monkeypatch.setattr(engine, "_decode", counting)
    handles = [engine.submit(asked(model, f"{number} " * 20, 60)) for number in range(12)]
    for number, handle in enumerate(handles):
        assert handle.text() == model.generate(f"{number} " * 20, max_tokens=60, temperature=0)
    assert 0 < max(running) <= 2  # of two blocks each
    with pytest.raises(cc.UsageError) as error:
        engine.submit(asked(model, "Hello", 290))
    assert error.value.code == "E-ENGINE-MEMORY"
    engine.close()
    with pytest.raises(cc.UsageError, match="too small for the states"):
        Engine(model, max_memory=1000)


def test_a_shared_prefix_is_computed_once(model):
    engine = Engine(model, parallel=4, context=200)
    start = "a prompt that all requests begin with, "
    handles = [engine.submit(asked(model, start + str(number), 5)) for number in range(9)]
    texts = [handle.text() for handle in handles]
    assert texts == [model.generate(start + str(number), max_tokens=5, temperature=0) for number in range(9)]
    length = len(model.tokenizer.encode(start))
    assert handles[0].usage.cached_tokens == 0
    assert [handle.usage.cached_tokens for handle in handles[1:]] == [length] * 8
    computed = sum(handle.usage.prompt_tokens - handle.usage.cached_tokens for handle in handles)
    assert engine.timing.prompt_tokens == computed
    engine.close()


def test_prompts_of_queued_requests_are_computed_before_tokens(model, monkeypatch):
    engine = Engine(model, parallel=4)
    rows, runs = engine._rows, []
    extend, step = rows.extend, rows.step

    def extended(row, tokens):
        runs.append("prompt")
        return extend(row, tokens)

    def stepped(at, tokens):
        runs.append(len(at))
        return step(at, tokens)

    monkeypatch.setattr(rows, "extend", extended)
    monkeypatch.setattr(rows, "step", stepped)
    prompts = [f"{number} Hello" for number in range(4)]
    with engine._changed:  # all of them are queued before the first one begins
        handles = [engine.submit(asked(model, prompt, 6)) for prompt in prompts]
    assert [handle.text() for handle in handles] == [
        model.generate(prompt, max_tokens=6, temperature=0) for prompt in prompts
    ]
    assert runs[:4] == ["prompt"] * 4
    assert "prompt" not in runs[4:]
    assert 4 in runs
    engine.close()


def test_offline_requests_without_a_limit_use_the_context(model):
    requests = [asked(model, "Hello", None), asked(model, "Hello", 3)]
    first, second = generate_all(model, requests, 40)
    assert len(first.tokens) > 3 or first.reason == "end"
    assert first.text == model.generate("Hello", max_tokens=None, context=40, temperature=0)
    assert len(second.tokens) <= 3
