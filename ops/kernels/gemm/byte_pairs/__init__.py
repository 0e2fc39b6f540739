"""u8 x s8 products by AVX2's multiply-add of byte pairs, which saturates at 16 bits: weights say where it cannot."""
