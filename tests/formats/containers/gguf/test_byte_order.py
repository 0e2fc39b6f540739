"""Fields of GGUF's blocks: byte order, and scales that are no numbers."""

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.formats.containers.gguf.byte_order import FIELDS, NO_BYTE_ORDER, bad_scales
from candle_convert.runtime.tensor.dtype import BY_GGML
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.gguf_files import BLOCKS, GGML, PLAIN, Maker, random_tensor
from gguf.scripts.gguf_convert_endian import byteswap_tensors


@pytest.mark.parametrize("dtype", [*PLAIN, *BLOCKS], ids=str)
def test_big_endian_tensors(dtype, tmp_path):
    maker, tensor = Maker(3, big=True), random_tensor(dtype)
    data = np.frombuffer(tensor.raw(), np.uint8).reshape(-1, dtype.block_nbytes)
    big = np.concatenate([part[:, ::-1] if swapped else part for part, swapped in words(data, dtype)], axis=1)
    path = tmp_path / "a.gguf"
    path.write_bytes(
        maker.file([maker.pair("k", "u32", 5)], [maker.info("x", tensor.shape[::-1], dtype.ggml)], big.tobytes())
    )
    if dtype.name in NO_BYTE_ORDER:
        with pytest.raises(cc.UnsupportedError, match=dtype.name):
            cc.open(path)
        return
    graph = cc.open(path)
    assert bytes(graph["x"].raw()) == tensor.raw()
    assert bytes(graph["x"][1:2].raw()) == bytes(tensor[1:2].raw())
    assert [note.code for note in graph.notes] == ["W-GGUF-ENDIAN"]
    assert graph.metadata["k"] == np.uint32(5)


def words(data, dtype):
    """The words of blocks or elements, one after the other: columns, and whether their byte order matters."""
    at = 0
    for field in FIELDS.get(dtype.name, f"u{dtype.bits // 8}").split():
        form = field.rpartition(":")[2]
        width, count = int(form[-1]), int(form[:-2] or 1)
        for _ in range(count if width > 1 else 1):
            step = width if width > 1 else count
            yield data[:, at : at + step], width > 1
            at += step


@pytest.mark.parametrize("kind", byteswap_tensors, ids=lambda kind: kind.name)
def test_blocks_are_swapped_as_gguf_py_swaps_them(kind, tmp_path):
    dtype, maker = BY_GGML[kind.value], Maker(3, big=True)
    tensor = random_tensor(dtype)

    class Blocks:
        data = np.frombuffer(bytes(tensor.raw()), np.uint8).copy()

    for at in range(0, Blocks.data.size, dtype.block_nbytes):
        byteswap_tensors[kind](Blocks, at)
    (tmp_path / "a.gguf").write_bytes(
        maker.file([], [maker.info("x", tensor.shape[::-1], dtype.ggml)], Blocks.data.tobytes())
    )
    assert bytes(cc.open(tmp_path / "a.gguf")["x"].raw()) == tensor.raw()


@pytest.mark.parametrize("dtype", BLOCKS, ids=str)
def test_scales_that_are_no_numbers_are_found(dtype, tmp_path):
    sound = np.zeros((4, dtype.block_nbytes), np.uint8)
    assert bad_scales(StoredTensor(dtype, (4, dtype.block), Held(sound.tobytes()))) is None
    found = set()
    for at in range(dtype.block_nbytes - 1):
        blocks = sound.copy()
        blocks[2, at : at + 2] = 0xFF
        if dtype.name == "iq1_m":
            blocks[2, -8:] = 0xFF
        if dtype.name == "q8_k":
            blocks[2, at : at + 4] = 0xFF
        bad = bad_scales(StoredTensor(dtype, (4, dtype.block), Held(blocks.tobytes())))
        assert (None if bad is None else (bad.block, bad.count)) == (None if sane(blocks, dtype) else (2, 1)), at
        if bad is not None:
            found.add(at)
    assert bool(found) == (dtype.name != "nvfp4")


def sane(blocks, dtype):
    """Whether libggml, or else the values that gguf-py decodes, take the blocks for sound."""
    if GGML is not None and dtype.name != "q8_1":  # which libggml does not look at
        return GGML.validate(dtype, blocks)
    if dtype.name == "mxfp4":
        return not (blocks[:, 0] == 255).any()
    if dtype.name in ("q8_1", "q8_k", "q1_0", "q2_0"):
        size = 2 if dtype.name in ("q1_0", "q2_0") else 4
        kind = np.float32 if dtype.name == "q8_k" else np.float16
        return bool(np.isfinite(np.ascontiguousarray(blocks[:, :size]).view(kind)).all())
    with np.errstate(all="ignore"):
        return bool(np.isfinite(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(dtype.ggml))).all())
