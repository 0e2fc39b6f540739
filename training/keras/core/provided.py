"""Functions that the readers and writers of files provide to models."""

from ....runtime.plugin.provided import Provided

PROVIDED = Provided("candle_convert.keras")
"""`save_model`: write a model to a .keras archive. `save_weights`, `load_weights`: Keras' files of weights.
`model_config`: a model's layers and their settings. `model_of`: a model of such a description."""
