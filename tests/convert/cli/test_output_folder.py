"""New folders appear complete, and an earlier one stays until then."""

from pathlib import Path

import pytest
from candle_convert.convert.cli.output_folder import staged


def test_an_earlier_folder_is_replaced(tmp_path):
    folder = tmp_path / "site"
    for text in ("first", "second"):
        with staged(folder) as fresh:
            (fresh / "a.txt").write_text(text)
    assert (folder / "a.txt").read_text() == "second"
    assert list(tmp_path.iterdir()) == [folder]


def test_an_earlier_folder_stays_if_the_block_fails(tmp_path):
    folder = tmp_path / "site"
    with staged(folder) as fresh:
        (fresh / "a.txt").write_text("first")
    with pytest.raises(ZeroDivisionError), staged(folder):
        _ = 1 / 0
    assert (folder / "a.txt").read_text() == "first"
    assert list(tmp_path.iterdir()) == [folder]


def test_an_earlier_folder_stays_if_the_new_one_cannot_take_its_name(tmp_path, monkeypatch):
    folder, rename = tmp_path / "site", Path.rename
    with staged(folder) as fresh:
        (fresh / "a.txt").write_text("first")

    def full(path, target):
        if path.name.endswith(".partial"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"), staged(folder) as fresh:
        (fresh / "a.txt").write_text("second")
    assert (folder / "a.txt").read_text() == "first"
