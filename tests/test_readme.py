"""The README and the pages of the guide work as typed: commands print what is shown below them, programs run, figures
are those of the registries."""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest
from candle_convert.convert.cli.main import GROUPS, cli
from candle_convert.runtime.contract.architecture import TEXT_GENERATION
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.runtime.cuda.plan.kernel_api import cpu_reason
from candle_convert.runtime.ir import registry
from candle_convert.runtime.ir.domain import COMPLEX
from candle_convert.runtime.plugin.discovery import COMMAND_GROUPS, COMMANDS
from candle_convert.tests.builders.packaged_models import minilm
from candle_convert.tests.builders.paths import DOCS, EXAMPLES, REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
GUIDE = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "guide").glob("*.md"))}
COMING_FROM = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "from").glob("*.md"))}
PAGES = {"README": README, **GUIDE, **COMING_FROM}
MOST_BYTES = 8000
"""Of the README, which is to be read in a minute."""
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


def _commands(text):
    """(command line, the lines that a page shows below it), in order."""
    for command, output in SETUP.findall(text):
        yield command, output.splitlines()
    for block in SHOWN.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield command, output


def _skeleton(line):
    """A line without figures and alignment, which depend on the machine."""
    return " ".join(FIGURE.sub("#", re.sub(r"[─━]+", "─", line)).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples and a model, with what the commands of the README made."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(EXAMPLES, folder / "examples")
    (folder / "all-MiniLM-L6-v2").symlink_to(minilm())
    _try_commands(README, folder)
    return folder


def _run(words, folder):
    environment = {**os.environ, "COLUMNS": "130", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=800
    )


def _try_commands(text, folder):
    for command, shown in _commands(text):
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


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_is_shown_and_python_runs(page, folder):
    if page != "README":
        _try_commands(PAGES[page], folder)
    for program, shown in PYTHON.findall(PAGES[page]):
        done = _run(["-c", program], folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(shown)


def test_the_readme_is_short_and_names_every_page():
    assert len(README.encode()) < MOST_BYTES
    assert set(re.findall(r"\(docs/guide/(\w+)\.md\)", README)) == set(GUIDE)
    assert set(re.findall(r"\(\.\./from/(\w+)\.md\)", GUIDE["compare"])) == set(COMING_FROM)


@pytest.mark.parametrize("page", COMING_FROM)
def test_commands_beside_those_of_other_tools_have_their_options(page):
    for shown in re.findall(r"`candle-convert ([^`]+)`", COMING_FROM[page]):
        command = cli
        words = shlex.split(shown)
        if words[0] not in COMMANDS:
            words.insert(0, "convert")
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
        command.make_parser(click.Context(command)).parse_args([word for word in words if word != "--help"])


def test_figures_are_those_of_the_registries():
    operators = [each for each in registry.operators().values() if each.domain != COMPLEX]
    on_device = sum(cpu_reason(each) is None for each in operators)
    decoders = [each for each in architectures() if each.task().name == TEXT_GENERATION]
    (least,) = re.findall(r"^More than (\d+) decoder architectures", GUIDE["generate"], re.MULTILINE)
    assert len(decoders) > int(least)
    assert f"more than {least} decoder architectures" in README
    assert f"| language-model architectures | more than {least} |" in GUIDE["compare"]
    assert f"for more than {math.floor(100 * on_device / len(operators) / 5) * 5}% of the operators" in GUIDE["cuda"]


def test_every_command_is_listed_under_its_group():
    sections = re.split(r"^## ", (DOCS / "COMMANDS.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    listed = {section.split("\n")[0]: re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE) for section in sections}
    grouped = {group: [name for name in COMMANDS.names() if COMMAND_GROUPS.load(name) == group] for group in GROUPS}
    assert {group: sorted(listed[group]) for group in GROUPS} == grouped
    assert sorted(name for names in grouped.values() for name in names) == sorted(COMMANDS.names())
