"""The process behind `hostile.Sandbox`: one JSON request a line, one JSON answer a line."""

import json
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import candle_convert as cc
import ml_dtypes  # noqa: F401
import numpy  # noqa: F401
from candle_convert.convert.recognise import formats


def act(action: str, path: str) -> str:
    """Do it; a short text about what opened."""
    if action == "scan":
        return json.dumps([finding.code for finding in cc.scan(path).findings])
    graph = cc.open(path)
    if action == "read":
        for tensor in graph.weights.values():
            for _ in tensor.chunks():
                pass
    if action == "convert":
        with tempfile.TemporaryDirectory() as folder:
            cc.convert(path, Path(folder) / "out.safetensors")
    return str(graph.weights)[:2000]


def main() -> None:
    """Serve until standard input ends."""
    formats()
    base = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = base + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        action, path = json.loads(line)
        began = time.perf_counter()
        answer = {"code": "", "exit_code": 0, "detail": ""}
        try:
            answer["detail"] = act(action, path)
        except cc.Error as error:
            answer |= {"code": error.code, "exit_code": error.exit_code, "detail": str(error)}
        except BaseException:
            answer["foreign"] = traceback.format_exc()
        answer["seconds"] = time.perf_counter() - began
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
