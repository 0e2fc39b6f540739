"""The oracles' own declarations: a library whose structures differ is found before it is asked for anything."""

import ctypes

import pytest
from candle_convert.tests.oracles import libggml, libllama
from candle_convert.tests.oracles.llama_cpp import LayoutError

GGML = pytest.mark.skipif(libggml.NAME is None, reason="xllamacpp is not installed")
LLAMA = pytest.mark.skipif(libllama.NAME is None, reason="xllamacpp is not installed")


def shifted(structure):
    """The structure with a field in front that the library does not have."""
    return type(structure.__name__, (ctypes.Structure,), {"_fields_": [("more", ctypes.c_int64), *structure._fields_]})


@GGML
def test_structures_of_libggml_are_as_declared():
    libggml.load()


@GGML
def test_other_traits_are_found(monkeypatch):
    monkeypatch.setattr(libggml, "Traits", shifted(libggml.Traits))
    with pytest.raises(LayoutError, match="ggml_type_traits reads as"):
        libggml.load()


@LLAMA
def test_structures_of_libllama_are_as_declared():
    libllama.loaded.__wrapped__()


@LLAMA
@pytest.mark.parametrize("name", ["Batch", "Memory"])
def test_other_structures_of_libllama_are_found(monkeypatch, name):
    short = type(name, (ctypes.Structure,), {"_fields_": [("context", ctypes.c_uint32), ("count", ctypes.c_int32)]})
    monkeypatch.setattr(libllama, name, short)
    with pytest.raises(LayoutError, match="llama"):
        libllama.loaded.__wrapped__()
