"""`pytest --changed`: which modules of tests a change reaches, and which files git calls changed."""

import subprocess

import pytest
from candle_convert.tests.builders.paths import REPOSITORY, TESTS
from candle_convert.tests.plugins import changed_tests


def reached(*changed):
    paths = frozenset(REPOSITORY / path for path in changed)
    return {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py") if changed_tests._reaches(paths, path)}


def test_importers_direct_and_indirect():
    found = reached("tests/builders/onnx_bytes.py")
    assert {"formats/containers/onnx/test_hostile_files.py"} < found
    assert len(found) < 40
    assert "formats/test_safetensors.py" in reached("formats/safetensors.py")


def test_names_of_the_package_count_by_their_modules():
    assert "optim/optimizers/test_lbfgs.py" in reached("runtime/base/errors.py")


def test_tests_of_the_folder_and_of_those_around_it():
    found = reached("ops/linalg/a_new_operator.py")
    assert {"ops/linalg/test_matmul_kernel.py", "ops/test_examples.py", "ops/test_sweep.py"} <= found
    assert "ops/nn/test_nn.py" not in found
    assert "test_readme.py" not in found


def test_data_by_name():
    assert "test_readme.py" in reached("README.md")
    assert "test_documents.py" in reached("docs/GLOSSARY.md")


def test_a_changed_test_and_what_all_depend_on():
    assert reached("tests/ops/nn/test_nn.py") == {"ops/nn/test_nn.py"}
    assert len(reached("tests/conftest.py")) == len([*TESTS.rglob("test_*.py")])
    assert reached() == set()


def test_changes_are_those_of_git(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "same").write_text("1")
    (tmp_path / "other").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    for name in ("other", "new", "ignored"):
        (tmp_path / name).write_text("2")
    monkeypatch.setattr(changed_tests, "REPOSITORY", tmp_path)
    changed_tests.changed_since.cache_clear()
    assert changed_tests.changed_since("HEAD") == {tmp_path / "other", tmp_path / "new"}
    with pytest.raises(pytest.UsageError, match="--changed: "):
        changed_tests.changed_since("no-such-commit")
    changed_tests.changed_since.cache_clear()
