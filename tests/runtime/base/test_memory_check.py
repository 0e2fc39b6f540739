"""What a run may spend: hostile models of operators, refused by the plan or while they run, in little time and
memory."""

import gc
import resource
from pathlib import Path

import candle_convert as cc
import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base import memory_check
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.oracles.cpu_time import within
from onnx import parser

HUGE = 1 << 40
MEMORY = 64 << 20
SECONDS = 1.0


def graph_of(text, opset=18):
    return onnx_graph.graph_of(parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}'))


def constant(name, values, kind="int64"):
    values = values if isinstance(values, tuple) else (values,)
    return f"{name} = Constant <value = {kind}[{len(values)}] {{{', '.join(map(str, values))}}}> ()"


def one(text, inputs="float[2] x"):
    return f"g ({inputs}) => (y) {{ {text} }}"


X = {"x": np.ones(2, np.float32)}
IMAGE = {"x": np.ones((1, 1, 2, 2), np.float32)}
SIZE = {"n": np.array([HUGE])}
SIZED = "int64[1] n, float[2] x"
BOMBS = [
    (88, "constant-of-shape", one(f"{constant('s', HUGE)} y = ConstantOfShape (s)"), X),
    (88, "constant-of-shape-fed", one("y = ConstantOfShape (n)", "int64[1] n"), SIZE),
    (
        88,
        "range",
        one(
            f"a = Constant <value = int64 {{0}}> () b = Constant <value = int64 {{{HUGE}}}> () c = Constant <value = "
            f"int64 {{1}}> () "
            "y = Range (a, b, c)"
        ),
        X,
    ),
    (
        88,
        "range-fed",
        one(
            "a = Constant <value = int64 {0}> () c = Constant <value = int64 {1}> () z = Squeeze (n) y = Range (a, z, "
            "c)",
            "int64[1] n",
        ),
        SIZE,
    ),
    (88, "tile", one(f"{constant('r', HUGE)} y = Tile (x, r)"), X),
    (88, "tile-fed", one("y = Tile (x, n)", SIZED), X | SIZE),
    (88, "expand", one(f"{constant('s', (HUGE, 2))} y = Expand (x, s)"), X),
    (
        88,
        "expand-fed",
        one("two = Constant <value = int64[1] {2}> () s = Concat <axis = 0> (n, two) y = Expand (x, s)", SIZED),
        X | SIZE,
    ),
    (
        88,
        "resize",
        one(f"{constant('s', (1, 1, 1 << 20, 1 << 20))} y = Resize (x, , , s)", "float[1, 1, 2, 2] x"),
        IMAGE,
    ),
    (
        88,
        "resize-scales",
        one(
            f"{constant('s', ('1.0', '1.0', '1000000.0', '1000000.0'), 'float')} y = Resize (x, , s)",
            "float[1, 1, 2, 2] x",
        ),
        IMAGE,
    ),
    (88, "pad", one(f"{constant('p', (0, HUGE))} y = Pad (x, p)"), X),
    (
        88,
        "one-hot",
        one(
            f"d = Constant <value = int64 {{{HUGE}}}> () {constant('v', (0, 1))} i = Cast <to = 7> (x) y = OneHot (i, "
            "d, v)"
        ),
        X,
    ),
    (88, "eye-like", one(f"{constant('s', (1 << 20, 1 << 20))} z = ConstantOfShape (s) y = EyeLike (z)"), X),
    (88, "random", one(f"y = RandomNormal <shape = [{HUGE}]> ()"), X),
    (
        88,
        "outer-product",
        one(
            f"{constant('a', (1 << 24, 1))} {constant('b', (1, 1 << 24))} p = Expand (x, a) q = Expand (x, b) y = "
            "MatMul (p, q)",
            "float x",
        ),
        {"x": np.float32(1)},
    ),
    (
        88,
        "doubling",
        one(
            " ".join(f"v{k + 1} = Concat <axis = 0> (v{k}, v{k})" for k in range(40)).replace("v0", "x")
            + " y = Neg (v40)"
        ),
        X,
    ),
]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("number", "name", "text", "feeds"), BOMBS, ids=[f"{number}-{name}" for number, name, _, _ in BOMBS]
)
def test_sizes_that_no_machine_has(number, name, text, feeds, native):
    graph = graph_of(text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def refused():
        with pytest.raises(cc.LimitError) as caught:
            Session(graph, threads=1, native=native).run(None, feeds)
        return caught.value

    error = refused() if native else within(SECONDS, refused)
    assert error.code == "E-RUN-MEMORY"
    assert error.exit_code == 6
    assert error.hint
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < MEMORY


def forever(trips, body="s2 = Neg (s) next = Identity (goes)", extra=""):
    return f"""g (float[2] x, int64 m) => (y) {{
      {constant("many", trips)} {extra} y = Loop ({"many" if trips > 0 else "m"}, , x) <
        body = b (int64 i, bool goes, float[2] s) => (bool next, float[2] s2) {{ {body} }}
      > }}"""


NESTED = """s2 = Loop (most, , s) <
    body = c (int64 j, bool on, float[2] t) => (bool after, float[2] t2) { t2 = Neg (t) after = Identity (on) }
  > next = Identity (goes)"""
UNKNOWN = (
    "s2 = Neg (s) z = Abs (s) t = ReduceSum <keepdims = 0> (z) none = Constant <value = float {-1.0}> () next = "
    "Greater (t, none)"
)
MOST = (1 << 63) - 1
LOOPS = [
    ("2^63-trips", forever(MOST), {"m": np.array(1)}),
    ("2^63-trips-fed", forever(0), {"m": np.array(MOST)}),
    (
        "a-billion-times-a-billion",
        forever(10**9, NESTED, "most = Constant <value = int64 {1000000000}> ()"),
        {"m": np.array(1)},
    ),
    ("a-condition-that-always-holds", forever(0, UNKNOWN), {"m": np.array(MOST)}),
]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("name", "text", "feeds"), LOOPS, ids=[f"89-{name}" for name, _, _ in LOOPS])
def test_loops_end_with_their_time(name, text, feeds, native):
    session = Session(graph_of(text), threads=1, native=native)
    with cc.limits(time=0.3), pytest.raises(cc.LimitError) as caught:
        session.run(None, feeds | X)
    assert caught.value.code == "E-RUN-TIME"
    assert caught.value.hint


@pytest.mark.parametrize("native", [False, True])
def test_a_loop_that_cannot_end_in_time_does_not_begin(native):
    session = Session(graph_of(forever(MOST)), threads=1, native=native)

    def refused():
        with pytest.raises(cc.LimitError, match=r"E-RUN-TIME.*Neg" if native else r"E-RUN-TIME.*Loop.* 600 s"):
            session.run(None, X | {"m": np.array(1)})

    within(SECONDS, refused)


SQUARE = "g (float[n, n] x) => (y) { a = MatMul (x, x) b = MatMul (a, x) y = Relu (b) }"


@pytest.mark.parametrize("native", [False, True])
def test_work_that_does_not_fit_into_the_time(native):
    session = Session(graph_of(SQUARE), threads=1, native=native)
    x = np.ones((512, 512), np.float32)
    assert session.run(None, {"x": x})[0].shape == (512, 512)
    with cc.limits(time=1e-5), pytest.raises(cc.LimitError, match=r"2\.69e[+]08 operations.*MatMul 'a'") as caught:
        session.run(None, {"x": x})
    assert (caught.value.code, caught.value.exit_code) == ("E-RUN-TIME", 6)
    session.run(None, {"x": x})


REFUSED = r"needs .* bytes, 5,000,000 are allowed; the largest node is MatMul 'a' with [48],"


@pytest.mark.parametrize("native", [False, True])
def test_memory_is_compared_with_the_limit_before_anything_runs(native):
    session = Session(graph_of(SQUARE), threads=1, native=native)
    x = np.ones((1000, 1000), np.float32)
    with cc.limits(memory="5MB"), pytest.raises(cc.LimitError, match=REFUSED) as caught:
        session.run(None, {"x": x})
    assert caught.value.code == "E-RUN-MEMORY"
    with cc.limits(memory="20MB"):
        session.run(None, {"x": x})


def test_weights_count_where_a_limit_is_set():
    weights = {"w": StoredTensor.of(np.zeros((1000, 1000), np.float32))}
    product = graph_of("g (float[1, 1000] x) => (y) { w = Constant <value = float {0.0}> () y = MatMul (x, w) }")
    product.weights, product.values["w"].shape = weights, (1000, 1000)
    with cc.limits(memory="3MB"), pytest.raises(cc.LimitError, match="weights of this model are 4,000,000"):
        Session(product)
    with cc.limits(memory="4001KB"), pytest.raises(cc.LimitError, match="4,000,000 of them for weights"):
        Session(product).run(None, {"x": np.zeros((1, 1000), np.float32)})
    with cc.limits(memory="5MB"):
        Session(product).run(None, {"x": np.zeros((1, 1000), np.float32)})


def test_the_address_space_is_part_of_what_is_free():
    gc.collect()  # what other tests left behind does not go in between
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = memory_check.available()
    taken = (
        next(
            int(line.split()[1])
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmSize")
        )
        * 1024
    )
    try:
        resource.setrlimit(resource.RLIMIT_AS, (taken + (300 << 20), hard))
        free = memory_check.available()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert before is None or free < before
    assert 200 << 20 < free < 400 << 20


def test_intermediate_results_of_python_are_freed():
    nodes = "t0 = Neg (x) " + " ".join(f"t{k + 1} = CumSum (t{k}, axis)" for k in range(60))
    graph = graph_of(f"g (float[n, n] x) => (y) {{ {constant('axis', 0)} {nodes} y = Neg (t60) }}")
    x = np.ones((700, 700), np.float32)
    with cc.limits(memory="12MB"):
        found = Session(graph, threads=1, native=True, simplify=False).run(None, {"x": x})[0]
    assert found.shape == x.shape
