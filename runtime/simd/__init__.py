"""The SIMD layer of CPU kernels: vector types, loads and stores, branchless math, dot products, reductions and AMX."""
