"""The CUDA device: selection, graph capture, mma instructions, and Numba's simulator for machines without a GPU."""
