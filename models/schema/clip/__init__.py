"""What the encoders of CLIP and SigLIP share: hyper-parameters, names of weights, configurations of OpenCLIP."""
