"""Attention on the device: flash attention with tensor cores, grouped heads that share keys, paged KV caches."""

import ml_dtypes
import numpy as np
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.kernel.kernel import Launch
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.plan import dtype_of
from candle_convert.runtime.session import Session

LONG = 23 if SIMULATED else 600
"""Keys that are more than a block of threads takes."""
F16, BF16, F32 = np.float16, ml_dtypes.bfloat16, np.float32
CASES = {
    # dtype, query heads, key heads, queries, keys, size, width, attributes, mask, what a kernel is called
    "prompt": (F16, 2, 2, 18, 18, 8, 8, {"is_causal": 1}, None, "attention on tensor cores"),
    "shared heads": (F16, 4, 2, 9, 21, 16, 24, {}, None, "attention on tensor cores"),
    "odd sizes": (BF16, 2, 1, 9, 7, 7, 5, {"softcap": 2.0}, None, "attention on tensor cores"),
    "mask": (F16, 2, 1, 9, 19, 8, 8, {"is_causal": 1}, "bool", "attention on tensor cores"),
    "bias": (F16, 1, 1, 17, 9, 24, 8, {}, "float", "attention on tensor cores"),
    "one query": (F32, 4, 2, 1, LONG, 6, 5, {}, None, "parts of attention joined"),
    "few queries": (F16, 2, 2, 2, LONG, 6, 5, {"is_causal": 1}, "bool", "parts of attention joined"),
}


def attention(dtype, heads, groups, queries, keys, size, width, attributes, mask, wanted):
    rng = np.random.default_rng(0)
    shapes = {"q": (1, heads, queries, size), "k": (1, groups, keys, size), "v": (1, groups, keys, width)}
    fed = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    if mask == "bool":
        fed["mask"] = rng.integers(0, 3, (1, heads, queries, keys)) > 0
    elif mask == "float":
        fed["mask"] = rng.standard_normal((queries, keys)).astype(dtype)

    def graph():
        made = Graph()
        made.inputs = [Value(name, dtype_of(array), array.shape) for name, array in fed.items()]
        made.values = {value.name: value for value in made.inputs}
        made.outputs = [Builder(made).add("Attention", list(made.inputs), attributes)]
        return made

    session = Session(graph(), device="cuda")
    found, expected = (
        np.asarray(item.run(None, fed)[0], np.float64) for item in (session, Session(graph(), native=False))
    )
    titles = [step.kernel.title for step in session.program.plans[-1].steps if isinstance(step, Launch)]
    assert any(title.startswith(wanted) for title in titles), titles
    bound = {F16: 2e-3, BF16: 2e-2, F32: 1e-5}[dtype]
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


def paged():
    """Two sequences over pages of 16, one of them decoding with a past that fills a page and a half."""
    rng = np.random.default_rng(1)
    heads, groups, size, pages = 4, 2, 8, 5
    ends, pasts, table = (
        np.array([0, 3, 4], np.int32),
        np.array([0, 25], np.int32),
        np.array([[4, 4], [2, 0]], np.int32),
    )
    new, cache = (4, groups * size), (pages, 16, groups, size)
    shapes = {"query": (4, heads * size), "key": new, "value": new, "keys": cache, "values": cache}
    fed = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()} | {
        "ends": ends,
        "pasts": pasts,
        "table": table,
    }

    def graph():
        made = Graph()
        made.inputs = [Value(name, dtype_of(array), array.shape) for name, array in fed.items()]
        made.values = {value.name: value for value in made.inputs}
        outputs = [Value(name) for name in ("y", "new_keys", "new_values")]
        made.values |= {value.name: value for value in outputs}
        attributes = {"num_heads": heads, "kv_num_heads": groups}
        Builder(made).add("PagedAttention", list(made.inputs), attributes, domain="com.microsoft", outputs=outputs)
        made.outputs = outputs
        return made

    session = Session(graph(), device="cuda")
    found, expected = session.run(None, fed), Session(graph(), native=False).run(None, fed)
    titles = [step.kernel.title for step in session.program.plans[-1].steps if isinstance(step, Launch)]
    assert any("in pages" in title for title in titles), titles
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float32), np.asarray(other, np.float32), rtol=2e-3, atol=2e-3)


for name, case in CASES.items():
    try:
        attention(*case)
    except AssertionError as error:
        raise AssertionError(name) from error
paged()
print(len(CASES))
