"""MatMul, Gemm, Linear, Einsum, Det."""
