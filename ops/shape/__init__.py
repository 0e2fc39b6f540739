"""Moving data: shapes, slices, gathers, concatenation."""
