"""Runs graph_cases.py in processes of its own and reads the rows they print."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from candle_convert.tests.builders.sampling import full, turn
from candle_convert.tests.device_scripts.runner import run_script


def rows(kind, every, only=""):
    """Rows of one case in `every`; on a card of all cases, which as many processes run as there are processors."""

    def run(every, first):
        script = DEVICE_SCRIPTS / "graph_cases.py"
        return run_script(script, kind, "--every", every, "--first", first, "--only", only).splitlines()

    if not cuda_support().devices:
        return [json.loads(line) for line in (run(1, 0) if full() else run(every, turn() % every))]
    count = os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        return [json.loads(line) for lines in pool.map(lambda first: run(count, first), range(count)) for line in lines]
