"""Engines that ``bench`` compares: each opens a model file and gives the function that runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError

Runner = Callable[[Mapping[str, Any]], object]


def _ours(path: str, threads: int | None, placed: Mapping[str, Any]) -> Runner:
    from ...runtime.execute.background_compile import BACKGROUND
    from ...runtime.session import Session
    from ..api import convert

    session = Session(convert.open(path), threads=threads, **placed)

    def run(feeds: Mapping[str, Any]) -> object:
        results = session.run(None, feeds)
        BACKGROUND.pause()  # of kernels for other shapes, which would take a core from the engines
        return results

    return run


def _onnxruntime(path: str, threads: int | None, placed: Mapping[str, Any]) -> Runner:
    onnxruntime = _package("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    name, _, number = placed.get("device", "cpu").partition(":")
    providers: list[Any] = ["CPUExecutionProvider"]
    if name == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise UnsupportedError(
                "E-BENCH-PEER", None, "this onnxruntime has no CUDA provider", hint="pip install onnxruntime-gpu"
            )
        providers = [("CUDAExecutionProvider", {"device_id": int(number or 0)}), *providers]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    return lambda feeds: session.run(None, dict(feeds))


def _openvino(path: str, threads: int | None, placed: Mapping[str, Any]) -> Runner:
    """In f32, as the model states, on processors with bf16 instructions too."""
    if placed.get("device", "cpu") != "cpu":
        raise UnsupportedError("E-BENCH-PEER", None, "openvino is compared on the CPU", hint="Leave out --device")
    openvino = _package("openvino")
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda feeds: request.infer(dict(feeds))


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedError("E-BENCH-PEER", None, f"{name} is not installed", hint=f"pip install {name}") from error


OURS = "candle-convert"
ENGINES: dict[str, Callable[[str, int | None, Mapping[str, Any]], Runner]] = {
    OURS: _ours,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
PEERS = tuple(name for name in ENGINES if name != OURS)
"""Engines to compare with."""
