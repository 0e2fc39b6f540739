"""Execution on CUDA: device programs, graph replay, layer offload, control flow and NCCL."""
