"""Layers of image models: convolutions with norms, pooling, patches, attention of windows."""
