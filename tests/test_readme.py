"""The README works as typed: its commands run in order and print what it shows, its Python runs, its figures are those
of the registries."""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from candle_convert.runtime.contract.architecture import TEXT_GENERATION
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.runtime.cuda.plan.kernel_api import cpu_reason
from candle_convert.runtime.ir import registry
from candle_convert.runtime.plugin.discovery import COMMANDS
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.builders.paths import DOCS, EXAMPLES, REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
"""A program, and what is shown below it, empty for nothing."""
SETUP = re.compile(
    r"^<!-- setup -->\n```sh\n.*?^(candle-convert [^\n]*)\n```\n.*?^```text\n(.*?)^```", re.MULTILINE | re.DOTALL
)
FIGURE = re.compile(r"-?\d[\d,.]*(e[+-]\d+)?( ?([KMGT]i?)?B\b| ?m?s\b)?|(?<= )-(?= |$)")
COMPILING = re.compile(r" compile ")
"""A line that a first run prints."""
SAMPLED = "generate"
"""Its text may differ from one processor to another; whatever it is, it follows the prompt."""


def _commands():
    """(command line, the lines that the README shows below it), in order."""
    command, output = SETUP.search(README).groups()
    yield command, output.splitlines()
    for block in SHOWN.findall(README):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield command, output


def _skeleton(line):
    """A line without figures and alignment, which depend on the machine."""
    return " ".join(FIGURE.sub("#", re.sub(r"[─━]+", "─", line)).split())


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / "all-MiniLM-L6-v2").symlink_to(minilm())
    return tmp_path


def _run(words, folder):
    environment = {**os.environ, "COLUMNS": "130", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=800
    )


def _try_commands(folder):
    for command, shown in _commands():
        program, *words = shlex.split(command)
        assert program == "candle-convert"
        done = _run(["-m", "candle_convert.convert", *words], folder)
        assert done.returncode == 0, (command, done.stderr)
        if words[0] == SAMPLED:
            assert done.stdout.strip(), command
            assert shown, command
        else:
            printed = [
                _skeleton(line) for line in done.stdout.splitlines() if line.strip() and not COMPILING.match(line)
            ]
            assert printed == [_skeleton(line) for line in shown if line.strip()], command


def test_commands_print_what_is_shown_and_python_runs(folder):
    _try_commands(folder)
    for program, shown in PYTHON.findall(README):
        done = _run(["-c", program], folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(shown)


def test_figures_are_those_of_the_registries():
    operators = list(registry.operators().values())
    on_device = sum(cpu_reason(each) is None for each in operators)
    decoders = [each for each in architectures() if each.task().name == TEXT_GENERATION]
    (least,) = re.findall(r"^More than (\d+) decoder architectures", README, re.MULTILINE)
    assert len(decoders) > int(least)
    assert f"| language-model architectures | more than {least} |" in README
    assert f"for more than {math.floor(100 * on_device / len(operators) / 5) * 5}% of the operators" in README


def test_every_command_is_listed():
    listed = re.findall(r"^\| `([a-z]+)` \|", (DOCS / "COMMANDS.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS.names())
