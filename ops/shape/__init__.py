"""Data movement: reshape, transpose, slice, concatenate, pad."""
