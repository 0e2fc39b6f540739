"""Results of image models: boxes, masks and depth from arrays, in the pixels of the picture."""
