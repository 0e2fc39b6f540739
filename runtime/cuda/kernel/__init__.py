"""CUDA kernel templates: elementwise, reductions, scatter, scan, sort and compaction."""
