"""CUDA: graphs on a graphics card, or under Numba's simulator of one (``NUMBA_ENABLE_CUDASIM=1``)."""
