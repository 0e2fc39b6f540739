"""The intermediate representation: operators, graphs, shape inference, builder, functions and opset upgrade."""
