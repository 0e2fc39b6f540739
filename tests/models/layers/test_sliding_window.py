"""Rings: layers with windows keep what they see and no more, and compute what transformers does far behind their first
turn."""

from dataclasses import replace

import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.kv_cache import resize_ring
from candle_convert.models.layers.sliding_window import ring_dim, ring_length, window_of
from candle_convert.tests.oracles.transformers import Case, difference, expected, made

WINDOWS = {"sliding_window": (8, 300), "max_position_embeddings": 4096}
GEMMA = {
    "head_dim": 16,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 24,
    "rope_local_base_freq": 10000,
    "num_hidden_layers": 4,
}
GPT_OSS = {
    "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "truncate": False},
}  # fmt: skip
CASES = [
    Case(name, cls, {"architectures": [cls], "model_type": kind, **WINDOWS, **more})
    for name, cls, kind, more in (
        ("mistral", "MistralForCausalLM", "mistral", {}), ("gemma3", "Gemma3ForCausalLM", "gemma3_text", GEMMA),
        ("gpt_oss", "GptOssForCausalLM", "gpt_oss", GPT_OSS),
    )
]  # fmt: skip


SHORT, LONG = WINDOWS["sliding_window"]
TURNS = [(case, window) for turn, case in enumerate(CASES) for window in ((SHORT, LONG), (LONG, SHORT))[turn % 2]]
"""Both windows by turns where one of two runs."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("case", "window"), TURNS, ids=[f"{case.name}-{window}" for case, window in TURNS])
def test_as_transformers_around_the_ring(case, window, tmp_path):
    reference = made(replace(case, config={**case.config, "sliding_window": window}), 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 96, (2, 2100))
    mask = np.ones_like(ids)
    mask[1, :5] = 0
    wanted = expected(reference, ids, mask)
    model = models.load(tmp_path, threads=1)
    cache = model.start(2)
    seen = 0
    for count in (1100, 1, 1, 1, 2, 1):
        part = slice(seen, seen + count)
        found = model.advance(ids[:, part], cache, mask[:, part] if seen == 0 else None)
        seen += count
        assert difference(found, wanted[:, seen - 1]) <= case.tolerance, seen
    assert cache.decode_step is not None
    rings = {array.shape[2] for name, array in cache.states.items()}
    assert ring_length(window, 512) in rings
    assert rings == {ring_length(window, 512)} | ({2048} if case.name != "mistral" else set())
    rest, cache = model.step(ids[:, seen:-1], cache)
    assert difference(rest, wanted[:, seen:-1]) <= case.tolerance
    assert difference(model.advance(ids[:, -1:], cache), wanted[:, -1]) <= case.tolerance


@pytest.mark.parametrize(
    ("held", "length", "count"), [(4, 8, 0), (4, 8, 3), (4, 8, 4), (4, 8, 11), (5, 7, 123), (8, 8, 21)]
)
def test_a_ring_of_another_length_holds_the_same(held, length, count):
    ring = np.full((2, held, 3), -1)
    for number in range(count):
        ring[:, number % held] = number
    made = resize_ring(ring, 1, length, count)
    assert made.shape == (2, length, 3)
    for number in range(max(0, count - min(held, length)), count):
        assert (made[:, number % length] == number).all()


@pytest.mark.parametrize("dim", [512, "window_size", "window_", "window_²", "a_window_4", "total_sequence_length"])
def test_lengths_of_other_models_are_no_rings(dim):
    assert window_of(ring_dim(512)) == 512
    assert window_of(dim) is None
