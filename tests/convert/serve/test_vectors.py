"""Vectors of inputs: options that a model does not have are the request's fault."""

import asyncio
from types import SimpleNamespace

import candle_convert as cc
import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.vectors import embedded
from candle_convert.models.pipelines.image.image_model import ImageModel


@pytest.mark.parametrize("options", [{"dim": 3}, {"prompt_name": "query"}], ids=str)
def test_options_that_a_model_lacks(options):
    served = SimpleNamespace(
        model=SimpleNamespace(task="image-feature-extraction", embed=ImageModel.embed), takes="pictures"
    )
    with pytest.raises(cc.UsageError, match=f"no option {next(iter(options))}"):
        asyncio.run(embedded(None, served, [], "input", **options))
