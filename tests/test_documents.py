"""The documents: every path that they name exists, and the tree they draw is the one that is there."""

import re

import pytest
from candle_convert.tests.builders.paths import REPOSITORY

DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/KERNELS.md", "docs/FORMATS.md"),
    *(str(path.relative_to(REPOSITORY)) for path in sorted((REPOSITORY / "docs").glob("*/*.md"))),
)
WINGS = (
    "runtime", "ops", "formats", "tensors", "nn", "optim", "torch_compat", "training", "models", "convert", "tests",
    "benchmarks",
    "docs", "examples",
)  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_exist(name):
    text = (REPOSITORY / name).read_text()
    named = set(re.findall(rf"`((?:{'|'.join(WINGS)})/[\w/.-]*)`", text))
    real = {path for path in named if not re.search(r"NAME|FOLDER|\.\.\.", path)}
    missing = sorted(path for path in real if not (REPOSITORY / path).exists())
    assert not missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    document = REPOSITORY / name
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text()):
        assert re.match(r"[a-z]+:", target) or (document.parent / target).exists(), target


def test_the_tree_of_the_architecture():
    """Each folder on a line of its own is there, and no folder of two levels is missing."""
    text = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text()
    tree = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1]
    drawn, wing = set(), ""
    for line in tree.splitlines()[1:]:
        names = re.findall(r"([a-z0-9_]+)/(?=\s|$)", line)
        if line.startswith("  ") and line[2] != " ":
            wing = names[0]
        else:
            drawn |= {f"{wing}/{name}" for name in names}
    assert all(any((REPOSITORY / path.split("/")[0]).rglob(path.split("/")[1])) for path in drawn)
    there = {
        f"{wing}/{path.name}"
        for wing in ("runtime", "formats", "tensors", "nn", "optim", "torch_compat", "training", "models", "convert")
        for path in (REPOSITORY / wing).iterdir()
        if (path / "__init__.py").exists()
    }
    assert there <= drawn
