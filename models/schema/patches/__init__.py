"""Hyper-parameters, weights and parts of models whose pictures are patches of any size."""
