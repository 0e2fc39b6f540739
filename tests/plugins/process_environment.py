"""Environment of the tests' processes, set before libraries are imported and passed on to processes that tests start.

NumPy, PyTorch and tokenizers have one thread: threads of two workers that wait for one another on the same cores take
many times what they compute in. No other thread is left when workers are forked: ONNX Runtime has one for reports to
its vendor. Tables are as wide as they need to be. CI=full runs what is sampled otherwise.
"""

import os

os.environ.pop("COLUMNS", None)
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "ORT_DISABLE_TELEMETRY": "1",
}
if os.environ.get("CI") == "full":
    os.environ["CANDLE_FULL"] = "1"
