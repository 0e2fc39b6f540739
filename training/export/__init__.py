"""Export: functions of tensors, modules and steps of training as graphs, which become files of ONNX."""
