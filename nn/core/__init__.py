"""Module, Parameter and containers: trees of layers with named parameters and buffers."""
