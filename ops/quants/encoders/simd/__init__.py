"""One block per SIMD lane: lane transposes, packed fields, searches for scales and lattice points."""
