"""Samples as wav2vec 2.0 and Moonshine take them: as they are, or with a mean of 0 and a variance of 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.contract.hyperparameter import Integer, ParameterError, checked, flag

FILE = "preprocessor_config.json"


def invalid_parameter(error: ParameterError, path: str | None) -> FormatError:
    """The error for an invalid value in preprocessor_config.json."""
    why = f"invalid parameter {error.key} in {FILE}: {error}"
    return FormatError("E-PREPROCESSOR-KEY", path, why, hint=f"Correct it in {FILE}")


RATE, NORMALIZE = "sampling_rate", "do_normalize"
LEAST = 1e-7
"""Added to the variance."""


@dataclass(frozen=True)
class Waveform:
    """Settings of samples as a model takes them.

    Attributes:
        rate: samples a second.
        normalize: whether each sound has a mean of 0 and a variance of 1.
    """

    rate: int = 16_000
    normalize: bool = True

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Samples f32 [count] of one sound, prepared."""
        if not self.normalize:
            return samples
        wide = samples.astype(np.float64)
        found: np.ndarray = ((wide - wide.mean()) / np.sqrt(wide.var() + LEAST)).astype(np.float32)
        return found


def stated_waveform(said: Mapping[str, Any], path: str | None, usual: Waveform) -> Waveform:
    """The settings of preprocessor_config.json, else `usual`. FormatError for an invalid value."""
    try:
        rate = checked(RATE, said.get(RATE, usual.rate), Integer(1000, 1_000_000))
        normalize = checked(NORMALIZE, said.get(NORMALIZE, usual.normalize), flag)
    except ParameterError as error:
        raise invalid_parameter(error, path) from error
    return Waveform(rate, normalize)
