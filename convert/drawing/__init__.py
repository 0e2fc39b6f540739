"""Drawing: a model as one self-contained page, its graph laid out in layers."""
