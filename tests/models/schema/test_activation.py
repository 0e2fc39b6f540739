"""Names of activation functions."""

import pytest
from candle_convert.models.layers.mlp import ACTIVATIONS
from candle_convert.models.schema.activation import NAMES, activation, hf_activation
from transformers.activations import ACT2FN


def test_every_name_has_a_function():
    assert set(NAMES) == set(ACTIVATIONS)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_transformers_own_and_read_back(name):
    assert hf_activation(name) in ACT2FN
    assert activation(hf_activation(name)) == name


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="gelu_newer"):
        activation("gelu_newer")
