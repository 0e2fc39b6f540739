"""Runs many graphs with ``device="cuda"`` in one process: on a card, or in the simulator with NUMBA_ENABLE_CUDASIM=1.

    python graph_cases.py examples|suite|graphs|transforms [--every N] [--first K] [--only REGEX] [--largest ELEMENTS]

Runs the cases K, K + N, K + 2 N and so on. Prints one JSON object a line: the case, nodes that ran on the CPU with
the reason, and what was wrong, null when nothing was.
"""

import argparse
import json
import re
import sys
import time
import traceback
import warnings
from functools import partial
from types import ModuleType

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.cuda.device.device import SIMULATED
from candle_convert.runtime.cuda.plan.plan import HostStep
from candle_convert.runtime.session import Session

LARGEST = 4000
"""Elements of inputs and outputs from which a case takes the simulator too long."""
POOLS = ("averagepool", "lppool", "maxpool")
"""Modules of the standard's tests that take 4 s to compute what is expected; a sample does without them, examples and
networks have pools."""


def size(values):
    return sum(np.size(value) for value in values if isinstance(value, np.ndarray))


def examples():
    """(name, graph, feeds, expected outputs or a session that computes them, tolerances) for every operator's
    examples."""
    from candle_convert.runtime.ir.registry import operators
    from candle_convert.tests.builders.single_node import model

    for operator in operators().values():
        for index, example in enumerate(operator.examples):
            made, feeds = model(operator, example)
            name = f"{operator.domain}{'.' if operator.domain else ''}{operator.name}-{index}"
            expected = partial(Session, native=False)
            yield (
                name,
                lambda made=made: onnx_graph.graph_of(made),
                feeds,
                expected,
                (operator.tolerance.rtol, operator.tolerance.atol),
            )


def transforms():
    """The same for what classifiers and regressors make of their scores, in every way that there is."""
    from candle_convert.ops.ml.class_scores import NAMES
    from candle_convert.runtime.ir.op import Example
    from candle_convert.runtime.ir.registry import operators
    from candle_convert.tests.builders.single_node import model

    for operator in operators().values():
        for index, example in enumerate(operator.examples):
            texts = any(isinstance(item, list) and isinstance(item[0], str) for item in example.attributes.values())
            if texts or "post_transform" not in operator.attributes:
                continue
            for number, name in enumerate(NAMES):
                chosen = number if operator.name == "TreeEnsemble" else name
                made, feeds = model(
                    operator, Example(example.inputs, {**example.attributes, "post_transform": chosen}, example.outputs)
                )
                feeds = {key: (np.abs(value) / 9).astype(value.dtype) for key, value in feeds.items()}
                expected = partial(Session, native=False)
                graph = lambda made=made: onnx_graph.graph_of(made)  # noqa: E731
                yield (
                    f"{operator.name}-{index} {name}",
                    graph,
                    feeds,
                    expected,
                    (operator.tolerance.rtol, operator.tolerance.atol),
                )


def suite():
    """The same for the standard's own tests, expected as the standard says."""
    from candle_convert.tests.oracles.onnx_suite import CASES, RANDOM, loaded

    for case in CASES:
        if case.kind == "real" or RANDOM.match(case.name):
            continue
        model, sets = loaded(case)
        for inputs, outputs in sets:
            graph = lambda model=model: onnx_graph.graph_of(model)  # noqa: E731
            rounded = 1e-6 if case.name.startswith("test_dft") else 0  # the standard's results are themselves rounded
            tolerances = (case.rtol, max(case.atol, rounded))
            yield case.name.removeprefix("test_"), graph, inputs, list(outputs), tolerances


def graphs():
    """The same for small networks, expected as onnxruntime computes them."""
    from candle_convert.tests.builders.device_networks import NETWORKS
    from candle_convert.tests.oracles.exact_onnxruntime import exact_session

    for name, build in NETWORKS.items():
        made, feeds = build()
        expected = exact_session(made, "ORT_ENABLE_ALL").run(None, feeds)
        yield name, lambda made=made: onnx_graph.graph_of(made), feeds, expected, (1e-4, 1e-5)


def host_steps(program):
    """Nodes that run on the CPU, in a program and those below it."""
    found = []
    for runner in program.runners:
        found += [[step.node.op.name, step.why] for step in runner.plan.steps if isinstance(step, HostStep)]
        for below in [*runner.below, *([runner.rest] if runner.rest is not None else [])]:
            found += host_steps(below)
    return found


def compare(expected, got, rtol, atol):
    if isinstance(expected, list | tuple):
        assert isinstance(got, list | tuple), "a sequence was expected"
        assert len(got) == len(expected)
        for one, other in zip(expected, got, strict=True):
            compare(one, other, rtol, atol)
    elif isinstance(expected, dict) or expected is None:
        assert got == expected
    else:
        expected = np.asarray(expected)
        assert isinstance(got, np.ndarray)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype) or (
            got.dtype.kind in "OUT" and expected.dtype.kind in "OUT"
        ), f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
        if got.dtype.kind in "OUT":
            assert got.tolist() == expected.tolist()
            return
        rough = {"float16": 2e-3, "bfloat16": 2e-2}.get(got.dtype.name, 0)
        if got.dtype.kind == "V" or rough:
            got, expected = got.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(got, expected, rtol=max(rtol, rough), atol=max(atol, rough / 10))


def run(graph, feeds, expected, tolerances):
    """(nodes on the CPU, what was wrong)."""
    session = Session(graph(), device="cuda")
    named = (
        feeds
        if isinstance(feeds, dict)
        else dict(zip((value.name for value in session.get_inputs()), feeds, strict=False))
    )
    if callable(expected):
        expected = expected(graph()).run(None, named)
    got = session.run(None, named)
    compare(expected, got, *tolerances)
    return host_steps(session.program)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["examples", "suite", "graphs", "transforms"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--largest", type=int, default=LARGEST if SIMULATED else 1 << 40)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.every > 1 and SIMULATED:
        sys.modules.update(
            {name: ModuleType(name) for name in (f"onnx.backend.test.case.node.{pool}" for pool in POOLS)}
        )
    for index, (name, graph, feeds, expected, tolerances) in enumerate(globals()[arguments.kind]()):
        if index % arguments.every != arguments.first or not re.search(arguments.only, name):
            continue
        row = {"case": name, "host": [], "wrong": None}
        if (
            size(feeds.values() if isinstance(feeds, dict) else feeds) + (0 if callable(expected) else size(expected))
            > arguments.largest
        ):
            row["skipped"] = "too large for the simulator"
        else:
            start = time.process_time()
            try:
                row["host"] = run(graph, feeds, expected, tolerances)
            except (AssertionError, Error) as error:
                row["wrong"] = str(error)[:600]
            except Exception:  # whatever the simulator meets in a kernel belongs to its case
                row["wrong"] = traceback.format_exc()[-1500:]
            row["seconds"] = round(time.process_time() - start, 3)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
