"""Trace of a bundle: answers sample requests in a process of its own and lists the files and modules that they loaded.

python -m candle_convert.convert.bundle.trace MODEL REQUESTS.json FACTS.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ...runtime.ir import registry
from .bundled_program import Application, answered

PACKAGE = __package__.partition(".")[0]


def main(arguments: Sequence[str]) -> None:
    """Write the answers, the files of this package that answering imported, those that a bundle needs besides, and the
    other packages that were imported."""
    model, requests, facts = arguments
    application = Application(model)
    answers = [
        json.loads(answered(application, json.dumps(request))[0]) for request in json.loads(Path(requests).read_text())
    ]
    if not any("error" in answer for answer in answers):
        application.prepare()
    imported = _files()
    others = {name.partition(".")[0] for name, path in imported.items() if "site-packages" in path}
    registry.operators()  # passes name operators that the model does not have
    found = {"answers": answers, "imported": _ours(imported), "files": _ours(_files()), "packages": sorted(others)}
    Path(facts).write_text(json.dumps(found))


def _files() -> dict[str, str]:
    """The files of imported modules."""
    paths = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: os.path.abspath(path) for name, path in paths.items() if path}


def _ours(files: dict[str, str]) -> list[str]:
    return sorted({path for name, path in files.items() if name.partition(".")[0] == PACKAGE})


if __name__ == "__main__":
    main(sys.argv[1:])
