"""Prefixes that several requests share: memory holds them once, and each request gets transformers' greedy tokens."""

from pathlib import Path

import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.model_rows import decoding_rows
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.batching.state_arrays import BLOCK
from candle_convert.models.generation.sampling import GREEDY
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.builders.numbered_tokens import NumberedTokens
from candle_convert.tests.oracles.transformers import expected, made

KNOWN = 90
SHARED = 3 * BLOCK
"""Tokens of the shared prefix."""


def loaded(name, folder):
    reference = made(decoder(name), 0, folder)
    model = models.load(folder, threads=1)
    model.tokenizer = NumberedTokens(KNOWN)
    return reference, model


def prompts(count):
    """Prompts that begin with the same tokens, and one that leaves them halfway."""
    rng = np.random.default_rng(7)
    shared = rng.integers(3, KNOWN, SHARED).tolist()
    made = [shared + rng.integers(3, KNOWN, 2 + index % 5).tolist() for index in range(count)]
    return [*made[:-1], shared[: SHARED // 2] + rng.integers(3, KNOWN, 40).tolist()]


def pages(rows):
    """Bytes in memory of all states, pages that are mapped several times once."""
    spans = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in rows.states.arrays.values()]
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            begin = int(first.partition("-")[0], 16)
            inside = any(low <= begin < high for low, high in spans)
        elif inside and first == "Pss:":
            total += int(rest.split()[0]) * 1024
    return total


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_sixteen_requests_hold_a_prefix_once(name, tmp_path):
    reference, model = loaded(name, tmp_path)
    asked = prompts(16)
    engine = Engine(model, parallel=16, context=SHARED + 64)
    counts = [4 + 3 * index % 11 for index in range(len(asked))]
    handles = [engine.submit(Request(prompt, count, GREEDY)) for prompt, count in zip(asked, counts, strict=True)]
    tokens = [[event.token for event in handle] for handle in handles]
    engine.close()
    for prompt, made_tokens in zip(asked, tokens, strict=True):
        logits = expected(reference, np.array([prompt + made_tokens]), None)[0, len(prompt) - 1 : -1, :KNOWN]
        assert made_tokens == logits.argmax(1).tolist()
    assert [handle.usage.cached_tokens for handle in handles] == [0, *[SHARED] * 14, SHARED // 2]


def test_blocks_and_pages(tmp_path):
    _, model = loaded("llama", tmp_path)
    rows = decoding_rows(model, 16, SHARED + 64, None)
    once = 0
    for row, prompt in enumerate(prompts(17)[:16]):
        start = rows.start(row, Request(prompt, 10, GREEDY))
        rows.extend(row, prompt[start.cached :])
        once = once or pages(rows)
    assert rows.blocks == SHARED // BLOCK + 16  # each row has one of its own for its last tokens
    lines = sum(array.shape[1] for array in rows.states.arrays.values())
    assert once >= SHARED * rows.states.token_nbytes
    assert pages(rows) <= once + 16 * 2 * lines * 4096
    for row in range(16):
        rows.release(row, reusable=False)
    assert rows.blocks == pages(rows) == 0


def test_a_full_cache_holds_more_requests_that_share(tmp_path):
    """Memory for seven blocks has one request of four without a shared prefix, and four with one."""
    _, model = loaded("llama", tmp_path)
    token = decoding_rows(model, 1, 300, None).states.token_nbytes
    rows = decoding_rows(model, 8, 300, 7 * BLOCK * token)
    shared = [Request(prompt, 10, GREEDY) for prompt in prompts(9)[:8]]
    for row, request in enumerate(shared[:4]):
        assert rows.has_room(request)
        start = rows.start(row, request)
        rows.extend(row, request.prompt_ids[start.cached :])
    assert not rows.has_room(shared[4])
    rows.release(0)
    assert rows.has_room(shared[4])
    assert not rows.has_room(Request([5] * SHARED, 10, GREEDY))


def test_a_row_that_leaves_a_shared_prefix_changes_no_other(tmp_path):
    reference, model = loaded("llama", tmp_path)
    rows = decoding_rows(model, 3, SHARED + 64, None)
    one, two, _ = (prompt[:-1] for prompt in prompts(3))
    other = [*one[: BLOCK + 5], *reversed(one[BLOCK + 5 :])]
    for row, prompt in ((0, one), (1, two)):
        start = rows.start(row, Request(prompt, 10, GREEDY))
        rows.extend(row, prompt[start.cached :])
    rows.release(0)
    rows.start(2, Request([8] * 20, 10, GREEDY))
    rows.extend(2, [8] * 20)
    start = rows.start(0, Request(other, 10, GREEDY))  # in the slot whose prefix row 1 shares
    assert start.cached == BLOCK + 5
    rows.extend(0, other[start.cached :])
    logits = rows.step([0, 1], [7, 7])
    for found, prompt in zip(logits, (other, two), strict=True):
        wanted = expected(reference, np.array([[*prompt, 7]]), None)[0, -1]
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
