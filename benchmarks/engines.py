"""Inference sessions of candle-convert and onnxruntime with the same settings."""

ENGINES = {"candle-convert": "candle_convert", "onnxruntime": "onnxruntime"}
"""Name and package of each engine."""


def open_session(engine, path, threads):
    """Session of an engine on the CPU."""
    if engine == "candle-convert":
        import candle_convert as cc

        return cc.InferenceSession(str(path), threads=threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
