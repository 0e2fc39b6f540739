"""Options that commands share: limits end with the command, also where its words are refused."""

import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.base.limits import current

COMMANDS = [
    ["run", "nothing.onnx", "--max-memory", "1GB"],
    ["run", "nothing.onnx", "--max-memory", "1GB", "--threads", "x"],
    ["inspect", "nothing.npz", "--limit", "memory=1GB", "--limit", "time=x"],
    ["metadata", "show", "nothing.gguf", "--limit", "memory=1GB", "--limit", "time=x"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_limits_end_with_the_command(words):
    kept = []  # the error keeps what it came from, as the refused context
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("candle_convert.convert.cli.main.explain", lambda error, _: kept.append(error) or (error, None))
        assert run(words) != 0
    assert current().chosen == frozenset()
