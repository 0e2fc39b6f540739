"""The documentation site builds without a warning, from pages, registries and docstrings."""

import os
import re
import subprocess
import sys

import pytest
from candle_convert.convert.inspect.architectures import families
from candle_convert.tests.builders.paths import DOCS, REPOSITORY


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_folder_is_there(site):
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert pages
    assert not [page for page in pages if not (site / page).is_file()]


def test_no_page_asks_another_host(site):
    """Scripts, styles, fonts and pictures stand beside the pages."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img)[^>]* src="(?:https?:)?//[^"]*"', text), page
        assert not re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]*"(?:https?:)?//[^"]*"', text), page


def test_models_errors_and_names_are_listed(site):
    models = (site / "models.html").read_text(encoding="utf-8")
    assert not [each.title for _, each in families() if f"<td>{each.title}</td>" not in models]
    assert 'id="e-out-busy"' in (site / "errors.html").read_text(encoding="utf-8")
    names = (site / "api.html").read_text(encoding="utf-8")
    assert 'id="candle_convert.verify"' in names
    assert "candle_convert.convert.load.load_model.load" in names
