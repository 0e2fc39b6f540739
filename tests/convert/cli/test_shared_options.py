"""Options that commands share: limits end with the command, also where its words are refused; an option of a
conversion is declared once."""

import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.cli.shared_options import option_group
from candle_convert.convert.translate.translation_options import TranslationOptions
from candle_convert.convert.write.conversion_options import FIELDS
from candle_convert.runtime.base.limits import current
from candle_convert.runtime.contract.architecture import KEEP_BRANCHES

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


@pytest.mark.parametrize("group", sorted({field.metadata["group"] for field in FIELDS.values()} - {None}))
def test_commands_take_the_options_that_name_their_group(group):
    def command():
        pass

    for option in option_group(group):
        option(command)
    declared = {field.metadata["flags"][0] for field in FIELDS.values() if field.metadata["group"] == group}
    assert {"/".join((*param.opts[:1], *param.secondary_opts)) for param in command.__click_params__} == declared


def test_settings_of_a_network_are_options_of_the_same_name():
    assert TranslationOptions(keep_branches=True).network_settings == {KEEP_BRANCHES: True}
