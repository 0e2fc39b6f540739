"""Runs graph_cases.py in a process of its own and reads the rows it prints."""

import json
import os

from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.device_scripts.runner import run_script

FULL = os.environ.get("CANDLE_FULL") == "1"


def rows(kind, every, only=""):
    found = run_script(
        DEVICE_SCRIPTS / "graph_cases.py",
        kind,
        "--every",
        1 if FULL or cuda_support().devices else every,
        "--only",
        only,
    )
    return [json.loads(line) for line in found.splitlines()]
