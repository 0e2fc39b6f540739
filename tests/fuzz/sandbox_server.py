"""The process behind `sandbox.Sandbox`: answers one JSON request a line with one JSON line, after a line that says it
is ready."""

import json
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import candle_convert as cc
import numpy
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.base.untrusted.json import parse
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.ir import registry
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.file import Source


def act(action: str, path: str) -> str:
    """Do it; a short text about what opened."""
    if action == "scan":
        return json.dumps([finding.code for finding in cc.scan(path).findings])
    if action == "json":
        source = Source(path)
        return type(parse(source.read(0, source.size), source, 0, "E-JSON")).__name__
    graph = cc.open(path)
    if action == "check":
        source = Source(path)
        found = next(format for format in formats() if format.name == graph.format).check(source, ReadOptions())
        return json.dumps([finding.code for finding in found])
    if action == "read":
        for tensor in graph.weights.values():
            for _ in tensor.chunks():
                pass
    if action == "convert":
        with tempfile.TemporaryDirectory() as folder:
            cc.convert(path, Path(folder) / "out.safetensors", threads=1)
    return str(graph.weights)[:2000]


def warm() -> None:
    """Load what any open may load, so that the limit counts only what a file makes us take."""
    formats()
    registry.operators()
    for dtype in DTYPES.values():
        if dtype.numpy is not None:
            dtype.as_numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        cc.save_file({"x": numpy.zeros(2, numpy.float32)}, path)
        act("convert", str(path))


def main() -> None:
    """Serve until standard input ends."""
    warm()
    base = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = base + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print("ready", flush=True)
    for line in sys.stdin:
        action, path = json.loads(line)
        began = time.process_time()
        answer = {"code": "", "exit_code": 0, "detail": ""}
        try:
            answer["detail"] = act(action, path)
        except cc.Error as error:
            answer |= {"code": error.code, "exit_code": error.exit_code, "detail": str(error)}
            answer |= {"file": error.file, "offset": error.offset, "hint": error.hint}
        except BaseException:
            answer["foreign"] = traceback.format_exc()
        answer["seconds"] = time.process_time() - began
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
