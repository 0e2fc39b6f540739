"""Planning for CUDA: nodes become launches, transfers and host steps."""
