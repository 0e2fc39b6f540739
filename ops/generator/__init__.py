"""Generated tensors: Constant, ConstantOfShape, EyeLike, Range, OneHot, Trilu."""
