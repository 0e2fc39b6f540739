"""Layers that carry a state from token to token: Mamba, RWKV, gated delta rule."""
