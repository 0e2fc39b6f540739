"""Functions that higher folders provide to `nn`: readers and writers of files."""

from ...runtime.plugin.provided import Provided

PROVIDED = Provided("candle_convert.nn")
"""`read_weights`: tensors of a file of any format by name, whose elements are read when they are used.
`write_tensors`: write tensors by name to a file.
`write_graph`: write a graph to an ONNX file."""
