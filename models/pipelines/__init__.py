"""Runners: the objects that `candle_convert.models.load` returns for models that are not decoders."""
