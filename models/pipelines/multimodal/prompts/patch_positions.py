"""Positions of tokens in time, rows and columns (M-RoPE), where pictures of any size stand among tokens of text."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from .....runtime.contract.architecture import Config
from ....layers.packed_patches.patch_encoder import SLOTS, WINDOWS, window_side, window_tables
from .prompt_rules import Arrays, Run

GRID = "image_grid_thw"
"""The array i64 [pictures, 3] of frames, rows and columns of patches."""


def checked_grid(config: Config, arrays: Arrays) -> np.ndarray:
    """The grid of each picture, i64 [pictures, 3]. UsageError for one that is missing, misshapen, or that squares of
    patches do not fill."""
    merge = config.values["vision.merge"]
    if GRID not in arrays:
        why = f"pixel_values need {GRID}"
        raise UsageError("E-RUN-INPUT", None, why, hint="Pass frames, rows and columns of each picture's patches")
    grid = np.asarray(arrays[GRID])
    if (
        grid.ndim != 2
        or grid.shape[1] != 3
        or grid.dtype.kind not in "iu"
        or (grid < 1).any()
        or (grid >= 1 << 16).any()
    ):
        why = f"{GRID} must have three positive integers for each picture"
        raise UsageError("E-RUN-SHAPE", None, why, hint="Pass frames, rows and columns of each picture's patches")
    for _, rows, columns in grid.tolist():
        if rows % merge or columns % merge:
            why = f"{rows} x {columns} patches cannot be merged by {merge} x {merge}"
            raise UsageError("E-RUN-SHAPE", None, why, hint=f"Resize pictures to multiples of {merge} patches")
    return grid.astype(np.int64)


def encoded_by_grid(run: Run, config: Config, arrays: Arrays) -> dict[str, np.ndarray]:
    """Features of the frames of pictures one after another, which do not see each other. UsageError for patches that do
    not fit their grids."""
    grid, pixels = checked_grid(config, arrays), np.asarray(arrays["pixel_values"])
    counts = grid.prod(axis=1)
    width = (
        config.values["vision.channels"] * config.values.get("vision.frames", 1) * config.values["vision.patch"] ** 2
    )
    if pixels.ndim < 2 or pixels[0].size != width or len(pixels) != counts.sum():
        why = f"pixel_values of the shape {list(pixels.shape)} do not fit the grids"
        expected = f"{counted(int(counts.sum()), 'patch', 'patches')} of {counted(width, 'value')}"
        raise UsageError("E-RUN-SHAPE", None, why, expected=expected)
    frames = np.repeat(grid * [0, 1, 1] + [1, 0, 0], grid[:, 0], axis=0)
    patches = np.split(pixels.reshape(len(pixels), width), frames.prod(axis=1).cumsum()[:-1])
    rows = [run(_frame(config, own, size)) for own, size in zip(patches, frames, strict=True)]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _frame(config: Config, patches: np.ndarray, size: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of a frame, under the names that encoders have for them."""
    arrays = {"pixel_values": patches, "grid_thw": size[None], GRID: size[None]}
    window, merge = config.values.get("vision.window"), config.values["vision.merge"]
    if window is None:
        return arrays
    side = window_side(window, merge, config.values["vision.patch"])
    tables = window_tables(int(size[1]), int(size[2]), merge, side)
    return {**arrays, **dict(zip((WINDOWS, SLOTS), tables, strict=True))}


def grid_positions(config: Config, ids: np.ndarray, mask: np.ndarray, arrays: Arrays) -> np.ndarray:
    """Positions i64 [3, batch, length] of token ids [batch, length]: a token of text has the next position on all axes;
    those of a picture have its row and column, and what follows begins after the longer one. UsageError for runs of
    placeholders that do not fit the grids."""
    grids = iter(checked_grid(config, arrays).tolist() if GRID in arrays else ())
    merge = config.values["vision.merge"]
    found = np.zeros((3, *ids.shape), np.int64)
    for row, (tokens, seen) in enumerate(zip(ids, mask, strict=True)):
        kept = np.flatnonzero(seen)
        found[:, row, kept] = _positions(tokens[kept] == config.values["image_token"], grids, merge)
    return found


def _positions(pictures: np.ndarray, grids: Any, merge: int) -> np.ndarray:
    """Positions [3, length] of one text; `pictures`: which tokens are placeholders."""
    found = np.zeros((3, len(pictures)), np.int64)
    index = position = 0
    while index < len(pictures):
        rest = pictures[index:]
        run = int(np.argmax(rest != rest[0])) or len(rest)
        if not rest[0]:
            found[:, index : index + run] = position + np.arange(run)
            index, position = index + run, position + run
            continue
        frames, rows, columns = next(grids, (0, 0, 0))
        size = (frames, rows // merge, columns // merge)
        count = int(np.prod(size))
        if not 0 < count <= run:
            why = f"{counted(run, 'placeholder')} in a row for a picture of {counted(count, 'token')}"
            hint = "Each picture has its own number of placeholders: pass prompts as text"
            raise UsageError("E-LM-PLACEHOLDER", None, why, hint=hint)
        found[:, index : index + count] = position + np.indices(size).reshape(3, -1)
        index, position = index + count, position + max(size[1:])
    return found
