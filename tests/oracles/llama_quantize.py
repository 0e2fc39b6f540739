"""llama-quantize, the oracle for whole quantized files: the program that CANDLE_LLAMA_QUANTIZE names, or else the same
function in cyllama's wheel.

The wheel's binding takes no importance matrix, and its release does not know the newest types.
"""

import os
import subprocess

import gguf

TOOL = os.environ.get("CANDLE_LLAMA_QUANTIZE")
LATER = ("Q2_0",)
"""File types that the wheel's release does not have."""


def quantized(source, target, file_type, *options):
    """Write a GGUF file as a file type such as Q4_K_M, on one thread. `options`: of the program, which alone takes
    any."""
    if TOOL:
        subprocess.run([TOOL, *options, str(source), str(target), file_type, "1"], check=True, capture_output=True)
        return
    assert not options
    from cyllama.llama.llama_cpp import LlamaModelQuantizeParams, model_quantize

    params = LlamaModelQuantizeParams()
    params.nthread, params.only_copy = 1, file_type == "COPY"
    if file_type != "COPY":
        kinds = gguf.LlamaFileType.__members__
        params.ftype = kinds[f"ALL_{file_type}" if file_type == "F32" else f"MOSTLY_{file_type}"].value
    model_quantize(str(source), str(target), params)


__all__ = ["LATER", "TOOL", "quantized"]
