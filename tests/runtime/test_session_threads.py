"""Many threads: several sessions at once, and one session from several threads, for more shapes than plans are kept,
against onnxruntime."""

import concurrent.futures
import random
import sys
import threading

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.execute import region_program
from candle_convert.runtime.session import Session
from onnx import parser

WORKERS, ROUNDS, SHAPES = 6, 40, 40
FREQUENT = 0.7
"""Part of the runs that have one of two shapes, so that threads meet in the same plan; the others push plans out."""
RNG = np.random.default_rng(5)


def values(*shape):
    return ", ".join(f"{item:.4f}" for item in RNG.normal(size=shape).reshape(-1) / 4)


CONVOLUTION = f"""g (float[n, 3, h] x) => (y, s) {{
  w = Constant <value = float[8, 3, 3] {{{values(8, 3, 3)}}}> ()
  c = Conv <pads = [1, 1]> (x, w)
  r = Relu (c)
  a = GlobalAveragePool (r)
  y = Sigmoid (r)
  s = Softmax <axis = 1> (a)
}}"""
RECURRENT = f"""g (float[t, 2, 5] x) => (y, last) {{
  w = Constant <value = float[1, 16, 5] {{{values(1, 16, 5)}}}> ()
  r = Constant <value = float[1, 16, 4] {{{values(1, 16, 4)}}}> ()
  y, last, c = LSTM <hidden_size = 4> (x, w, r)
}}"""
CONTROL = f"""g (float[t, 3] x, bool c, int64 m) => (last, all, chosen) {{
  h = Constant <value = float[3] {{{values(3)}}}> ()
  last, all = Scan <num_scan_inputs = 1, body = b (float[3] s, float[3] e) => (float[3] s2, float[3] o) {{
    p = Mul (s, e) s2 = Tanh (p) o = Add (s2, e)
  }}> (h, x)
  d = Loop (m, , last) <body = l (int64 i, bool g, float[3] s) => (bool n, float[3] s2) {{
    n = Identity (g) a = Add (s, last) s2 = Cos (a) }}>
  chosen = If (c) <then_branch = p () => (float[3] a) {{ a = Exp (d) }},
                     else_branch = q () => (float[3] b) {{ b = Neg (d) }}>
}}"""
FILTERED = """g (float[n] x) => (y) {
  w = NonZero (x) a = Gather (x, w) b = Exp (a) c = Sqrt (b) d = Log (c) e = Add (d, c) f = Abs (e) h = Neg (f)
  axis = Constant <value = int64 {1}> () y = CumSum (h, axis)
}"""


def feeds_of(name, size):
    if name == "convolution":
        return {"x": RNG.normal(size=(1 + size % 3, 3, 9 + 5 * size)).astype(np.float32)}
    if name == "recurrent":
        return {"x": RNG.normal(size=(1 + size, 2, 5)).astype(np.float32)}
    if name == "control":
        return {
            "x": RNG.normal(size=(1 + size, 3)).astype(np.float32),
            "c": np.array(bool(size % 2)),
            "m": np.array(size % 13),
        }
    return {"x": np.maximum(RNG.normal(size=10 + size), 0).astype(np.float32)}


MODELS = {"convolution": CONVOLUTION, "recurrent": RECURRENT, "control": CONTROL, "filtered": FILTERED}


@pytest.fixture(scope="module")
def work():
    """For each model its text, and for each shape feeds and what onnxruntime makes of them."""
    found = {}
    for name, text in MODELS.items():
        made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
        peer = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = [feeds_of(name, size) for size in range(SHAPES)]
        found[name] = (made, [(feed, peer.run(None, feed)) for feed in feeds])
    return found


@pytest.fixture(autouse=True)
def impatient():
    """Threads take turns far more often than they do otherwise."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def crowd(work, sessions, names, taps=False):
    """Every thread runs every model in an order of its own, and compares; the failures of all threads."""
    failures = []
    start = threading.Barrier(WORKERS)

    def worker(number):
        order = random.Random(number)
        start.wait()
        for _ in range(ROUNDS):
            for name in order.sample(names, len(names)):
                feeds, right = order.choice(work[name][1][:2] if order.random() < FREQUENT else work[name][1])
                seen = []
                session = sessions[name][number % len(sessions[name])]
                if taps and number % 2:
                    found = session.run_with_taps(feeds, ".", lambda tap, array, seen=seen: seen.append(array))
                else:
                    found = session.run(None, feeds)
                for one, other in zip(found, right, strict=True):
                    if one.shape != other.shape or not np.allclose(one, other, rtol=1e-4, atol=1e-5):
                        failures.append((number, name, {key: array.shape for key, array in feeds.items()}))

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for result in [pool.submit(worker, number) for number in range(WORKERS)]:
            result.result()
    return failures


def made(work, name, threads, native=True):
    return Session(graph_of(work[name][0]), threads=threads, native=native)


@pytest.mark.parametrize("threads", [1, 3])
def test_one_session_for_all_threads(work, threads):
    assert SHAPES > region_program.MAX_PLANS
    sessions = {name: [made(work, name, threads)] for name in MODELS}
    assert crowd(work, sessions, list(MODELS)) == []


def test_sessions_of_their_own(work):
    sessions = {name: [made(work, name, 2, native=number % 2 == 0) for number in range(WORKERS)] for name in MODELS}
    assert crowd(work, sessions, list(MODELS)) == []


def test_taps_beside_runs(work):
    sessions = {name: [made(work, name, 2)] for name in MODELS}
    assert crowd(work, sessions, list(MODELS), taps=True) == []


def test_limits_hold_in_their_thread_alone(work):
    session, (feeds, right) = made(work, "convolution", 1), work["convolution"][1][20]
    inside, done = threading.Event(), threading.Event()
    caught = []

    def limited():
        with cc.limits(memory="1KB"):
            inside.set()
            done.wait()
            try:
                session.run(None, feeds)
            except cc.LimitError as error:
                caught.append(error.code)

    thread = threading.Thread(target=limited)
    thread.start()
    inside.wait()
    np.testing.assert_allclose(session.run(None, feeds)[1], right[1], rtol=1e-4)
    done.set()
    thread.join()
    assert caught == ["E-RUN-MEMORY"]
