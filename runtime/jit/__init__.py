"""Just-in-time compilation: kernels become machine code through Numba or LLVM, are linked, and are cached on disk."""
