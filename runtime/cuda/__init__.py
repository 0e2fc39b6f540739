"""CUDA backend: plans, kernels and memory on a GPU, or under Numba's CUDA simulator (``NUMBA_ENABLE_CUDASIM=1``)."""
