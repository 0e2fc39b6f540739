"""Drawing of a model as one self-contained HTML page, with its graph laid out in layers."""
