"""Pictures in folders, and texts."""

import candle_convert as cc
import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for place, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for number in range(2 + place):
            pixels = rng.integers(0, 256, (6, 4, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "notes.txt").write_text("not a picture")
    return tmp_path


def test_pictures(folder):
    found = cc.data.ImageFolder(folder)
    assert found.classes == ["cat", "dog"]
    assert found.targets == [0, 0, 1, 1, 1]
    picture, target = found[4]
    expected = np.asarray(Image.open(found.samples[4][0]), np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(picture.numpy(), expected)
    assert target == 1
    pictures, targets = next(iter(cc.data.DataLoader(cc.data.ImageFolder(folder, size=(8, 3), mode="L"), 5)))
    assert pictures.shape == (5, 1, 8, 3)
    assert targets.tolist() == found.targets
    widths = cc.data.ImageFolder(folder, transform=lambda picture: picture.width, target_transform=str)
    assert widths[0] == (4, "0")


def test_folders_that_cannot_be_read(folder, tmp_path):
    (folder / "cat" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    with pytest.raises(cc.FormatError, match="E-DATA-PICTURE"):
        cc.data.ImageFolder(folder)[0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(cc.UsageError, match="E-DATA-FOLDER"):
        cc.data.ImageFolder(tmp_path / "empty")
    with pytest.raises(cc.FileAccessError, match="E-DATA-FOLDER"):
        cc.data.ImageFolder(tmp_path / "missing")


def test_rows_of_tokens(tmp_path):
    text = "the cat sat on the mat"
    words = cc.data.Vocabulary(text)
    assert words.decode(words.encode("hat")) == "hat"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text("hat")
    rows = cc.data.TokenDataset.from_files(tmp_path, words, 4)
    assert len(rows) == 6
    for place in range(len(rows)):
        given, following = rows[place]
        start = place * 4
        assert words.decode(given.tolist()) == (text + "hat")[start : start + 4]
        assert words.decode(following.tolist()) == (text + "hat")[start + 1 : start + 5]
    every = cc.data.TokenDataset(words.encode(text), 4, stride=1)
    assert len(every) == len(text) - 4
    batch, _ = next(iter(cc.data.DataLoader(every, 3)))
    assert [words.decode(row) for row in batch.tolist()] == ["the ", "he c", "e ca"]
    with pytest.raises(cc.UsageError, match="E-DATA-TOKEN"):
        words.encode("z")
    with pytest.raises(cc.UsageError, match="E-DATA-LENGTH"):
        cc.data.TokenDataset([1, 2], 2)
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(cc.FormatError, match="E-DATA-TEXT"):
        cc.data.TokenDataset.from_files(tmp_path, words, 4)
