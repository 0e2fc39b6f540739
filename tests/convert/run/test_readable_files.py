"""Runs over files of which some are damaged: what is computed, how often, and what is told."""

import pytest
from candle_convert.convert.run.readable_files import over_readable
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError

ERRORS = {
    "damaged": FormatError("E-SOUND-FORMAT", "damaged", "not a sound"),
    "coded": UnsupportedError("E-SOUND-CODING", "coded", "an unknown coding"),
    "refused": UsageError("E-OPTION", None, "no such option"),
}


class Computing:
    """Numbers files, and keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, files):
        self.asked.append(files)
        for file in files:
            if file in ERRORS:
                raise ERRORS[file]
        return [file.upper() for file in files]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_every_readable_file_has_its_result(capsys, batch):
    files, compute, told = ["a", "damaged", "b", "coded", "c"], Computing(), []
    found = over_readable(files, batch, compute, lambda *counts: told.append(counts))
    assert (list(found.rows), list(found.results)) == ([0, 2, 4], ["A", "B", "C"])
    assert {files[row]: error.code for row, error in found.errors.items()} == {
        "damaged": "E-SOUND-FORMAT",
        "coded": "E-SOUND-CODING",
    }
    assert found.exit_code == ERRORS["coded"].exit_code
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert told[-1] == (5, 5)
    assert max(compute.asked.count([file]) for file in files) == 1


def test_an_error_without_a_file_gets_its_name(capsys):
    def compute(files):
        if "narrow" in files:
            raise FormatError("E-PICTURE-SIZE", None, "a picture of 1 x 900")
        return files

    over_readable(["a", "narrow"], 2, compute)
    assert capsys.readouterr().err.startswith("✗ E-PICTURE-SIZE  narrow: a picture of 1 x 900. ")
    with pytest.raises(FormatError, match="narrow: a picture"):
        over_readable(["narrow"], 1, compute)


def test_a_single_file_and_other_errors_are_raised():
    with pytest.raises(FormatError):
        over_readable(["damaged"], 1, Computing())
    with pytest.raises(UsageError):
        over_readable(["a", "refused"], 2, Computing())
