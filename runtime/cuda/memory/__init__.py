"""Device memory: arrays, the memory pool, transfers and DLPack."""
