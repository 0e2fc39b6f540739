"""Rows that CLIP and SigLIP encoders share: hyper-parameters, names of weights, configurations of OpenCLIP."""
