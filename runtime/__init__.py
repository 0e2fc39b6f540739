"""The runtime: tensors, graphs, passes, planning and execution. It imports no operator, format or model."""
