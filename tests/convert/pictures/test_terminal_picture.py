"""Pictures in terminals: what the escape sequences hold, read by their definitions."""

import base64
import io
import re

import numpy as np
import pytest
from candle_convert.convert.pictures.terminal_picture import BLOCKS, KITTY, SIXEL, protocol, shown
from PIL import Image

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (14, 10, 3), np.uint8))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, KITTY),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, KITTY),
        ({"TERM": "foot"}, SIXEL),
        ({"TERM": "xterm-256color"}, BLOCKS),
        ({}, BLOCKS),
    ],
)
def test_protocol(environment, expected):
    assert protocol(environment) == expected


def test_kitty():
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", shown(PICTURE, KITTY, 10))
    assert pieces[0][0].startswith("a=T,f=100,")
    found = Image.open(io.BytesIO(base64.b64decode("".join(content for _, content in pieces))))
    assert np.array_equal(np.asarray(found), np.asarray(PICTURE))


def test_sixel():
    text = shown(PICTURE, SIXEL, 10)
    colors = {
        int(place): [int(level) for level in levels.split(";")]
        for place, levels in re.findall(r"#(\d+);2;([\d;]+)", text)
    }
    found = np.zeros((18, 10, 3))
    bands = re.sub(r"#\d+;2;[\d;]+", "", text.partition('q"1;1;10;14')[2].removesuffix("\x1b\\")).split("-")
    for top, band in enumerate(bands[:-1]):
        for color, columns in re.findall(r"#(\d+)([?-~]+)\$", band):
            for x, column in enumerate(columns):
                for bit in range(6):
                    if (ord(column) - 63) >> bit & 1:
                        found[6 * top + bit, x] = colors[int(color)]
    assert np.abs(found[:14] / 100 * 255 - np.asarray(PICTURE)).max() <= 4


def test_half_blocks():
    lines = shown(PICTURE, BLOCKS, 10).splitlines()
    assert len(lines) == 7
    cells = re.findall(r"38;2;(\d+);(\d+);(\d+)m\x1b\[48;2;(\d+);(\d+);(\d+)m", lines[0])
    assert np.array_equal(np.array(cells, int)[:, :3], np.asarray(PICTURE)[0])
    assert np.array_equal(np.array(cells, int)[:, 3:], np.asarray(PICTURE)[1])
