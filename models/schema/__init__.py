"""Schema entries that families share: hyper-parameters, weight bindings and the weight layouts of file formats."""
