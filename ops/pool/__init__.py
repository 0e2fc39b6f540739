"""Pooling, unpooling, region pooling."""
