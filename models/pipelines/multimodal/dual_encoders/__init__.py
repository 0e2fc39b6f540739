"""Models of texts and pictures with an encoder of each: graphs, tasks and zero-shot labels."""
