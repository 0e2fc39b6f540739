"""Make quantized_digests.json: the SHA-256 of the files that llama-quantize writes for the runs of
reproducible_models.py.

usage: make_quantized_digests.py LLAMA_QUANTIZE
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from candle_convert.tests.builders.paths import VECTORS
from candle_convert.tests.builders.reproducible_models import MODELS, RUNS, name_of, write_importance, write_model


def main(tool):
    digests = {}
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for model, lengths in MODELS.items():
            os.makedirs(f"{folder}/{model}")
            write_importance(f"{folder}/{model}/imatrix.gguf", write_model(f"{folder}/{model}/model.gguf", **lengths))
        for run in RUNS:
            model, options, file_type = run
            os.chdir(f"{folder}/{model}")
            done = subprocess.run(
                [tool, *options, "model.gguf", "out.gguf", file_type, "2"], capture_output=True, text=True
            )
            if done.returncode:
                sys.exit(f"{name_of(run)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            digests[name_of(run)] = hashlib.sha256(Path("out.gguf").read_bytes()).hexdigest()
        os.chdir(start)
    target = VECTORS / "quantized_digests.json"
    target.write_text(json.dumps(digests, indent=1) + "\n")
    print(len(digests), "files")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
