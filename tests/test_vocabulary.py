"""One term per idea: words that docs/GLOSSARY.md retires do not stand in code, prose or messages.

The last column of the glossary's tables names the words. A plain entry is refused everywhere. An entry such as
"`room` for allocations" is refused in the folders where the word can have that meaning alone (`SCOPES`). The words of
the last section are refused in first lines and public docstrings.
"""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest
from candle_convert.tests.builders.paths import REPOSITORY

GLOSSARY = REPOSITORY / "docs" / "GLOSSARY.md"
WINGS = ("runtime", "ops", "formats", "tensors", "nn", "optim", "torch_compat", "training", "models", "convert")
KERNELS = ("ops/kernels/", "ops/*_kernel.py", "runtime/simd/", "runtime/execute/")

SCOPES = {
    "numbers for the entries of a tensor": ("runtime/simd/", "runtime/tensor/", "runtime/plan/", "runtime/execute/"),
    "halves for dtypes": (
        "runtime/simd/",
        "runtime/tensor/",
        "runtime/jit/",
        "ops/cast/",
        "ops/quants/cuda/",
        "ops/quants/llvm/",
    ),
    "texts for string elements": (
        "runtime/feeds.py",
        "runtime/tensor/",
        "runtime/ir/",
        "ops/cast/",
        "ops/ml/",
        "ops/text/",
    ),
    "room for allocations": ("runtime/plan/", "runtime/execute/", "runtime/cuda/"),
    "rooms for allocations": ("runtime/", "ops/"),
    "nesting for results": ("runtime/plan/", "ops/"),
    "refusal for kernels": KERNELS,
    "refused for kernels": KERNELS,
    "encoding for plans": ("runtime/plan/", "runtime/execute/"),
    "beside for sessions": ("runtime/session.py", "runtime/plan/", "runtime/execute/", "models/generation/"),
    "finish for epilogues": ("ops/kernels/", "runtime/cuda/matmul/"),
    "recognise for formats": ("convert/open/", "convert/api/", "formats/"),
}
"""Where a word that has other meanings is refused: folders, or patterns of paths."""

NAMES_ONLY = {"numbers", "halves"}
"""Words that prose needs with their plain meaning in the same folders; only identifiers are checked."""

EXEMPT = {
    r"Path\.home\b": "the standard library's name of a user's directory",
    r"\b((XDG_\w+|HF)_HOME|HOME)\b": "environment variables",
    r'"stretch"': "a value of ONNX Resize's keep_aspect_ratio_policy",
}
"""Spellings of others, as regular expressions, with the reason why they stay."""


DOCSTRINGS = "## First lines and public docstrings"
"""The glossary's section of words that are refused there."""
SLOPES = ("ops/elementwise/", "nn/", "optim/core/line_search.py", "models/layers/alibi.py")
"""Where a slope is a coefficient of leaky_relu or of ALiBi, or a derivative along a line."""


@functools.cache
def retired():
    """The glossary's retired words: word -> context (None: everywhere)."""
    found = {}
    for line in GLOSSARY.read_text().partition(DOCSTRINGS)[0].splitlines():
        if line.startswith("|"):
            last = line.strip().strip("|").rpartition("|")[2]
            for word, context in re.findall(r"`([^`]+)`(?: (?:for|of) ([^,|]+))?", last):
                found[word] = context.strip() or None
    return found


def _in_scope(path, scope):
    return any(path.startswith(part) if part.endswith("/") else Path(path).match(part) for part in scope)


@functools.cache
def _words_at(folder, name):
    path = f"{folder}/{name}" if folder != "." else name
    return tuple(
        word
        for word, context in retired().items()
        if context is None or _in_scope(path, SCOPES[f"{word} for {context}"])
    )


@functools.cache
def _pattern(words):
    """Finds words in prose and as parts of snake_case, CamelCase and UPPER_CASE identifiers."""
    spelled = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in sorted(words, key=len, reverse=True))
    camel = "|".join(word.title().replace(" ", "") for word in words)
    return re.compile(rf"(?<![A-Za-z])(?i:{spelled})(?![A-Za-z])|(?<![A-Z])(?:{camel})(?![a-z])")


def _blanked(text):
    """The text without exempt spellings; lines and columns stay."""
    return re.sub("|".join(EXEMPT), lambda match: "x" * len(match[0]), text)


def _identifiers(tree):
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name", "asname", "rest"):
            if isinstance(value := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), value


def _strings(tree, docstrings_only):
    """String constants by line. Expression statements are docstrings, of attributes as well."""
    nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)) if docstrings_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def findings(path, text, words):
    """Retired words in one file, as `path:line: word`. Messages are checked in the product, not the data of tests."""
    text, pattern = _blanked(text), _pattern(words)
    if not pattern.search(f"{path}\n{text}"):
        return []
    names, prose = [(0, path)], []
    if path.endswith(".py"):
        tree = ast.parse(text)
        product = path.startswith(WINGS) or "/" not in path
        names += _identifiers(tree)
        prose += [*_strings(tree, not product), *_comments(text)]
    else:
        prose += enumerate(text.splitlines(), 1)
    found = set()
    for pieces, allowed in ((names, set()), (prose, NAMES_ONLY)):
        for line, piece in pieces:
            for match in pattern.finditer(piece):
                if match[0].lower() not in allowed:
                    found.add(f"{path}:{line + piece.count(chr(10), 0, match.start())}: {match[0]}")
    return sorted(found)


def _files():
    for path in sorted(REPOSITORY.rglob("*")):
        inside = path.relative_to(REPOSITORY)
        hidden = any(part.startswith(".") or part in ("shared", "__pycache__") for part in inside.parts)
        hidden |= inside.parts[0] == "build"
        documents = len(inside.parts) == 1 or inside.parts[0] == "docs"
        if not hidden and (path.suffix == ".py" or (path.suffix == ".md" and documents)) and path != GLOSSARY:
            yield inside


def test_no_retired_word_stands():
    found = []
    for path in _files():
        words = _words_at(str(path.parent), path.name)
        found += findings(str(path), (REPOSITORY / path).read_text(), words)
    assert not found, "\n".join([f"{len(found)} retired words", *found])


def _documented(node):
    """Docstrings of public classes and functions, with their lines."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            if docstring := ast.get_docstring(child):
                yield child.lineno, docstring
            if isinstance(child, ast.ClassDef):
                yield from _documented(child)


@functools.cache
def _words_of_docstrings():
    """Those of the glossary's last section."""
    return re.findall(r"`(\w+)`", GLOSSARY.read_text().partition(DOCSTRINGS)[2].partition("|---|")[2])


def docstring_findings(path, text):
    """Words of the glossary's last section in the first line of a module and in public docstrings."""
    words = [word for word in _words_of_docstrings() if not (word.startswith("slope") and path.startswith(SLOPES))]
    pattern = re.compile(rf"(?<![\w-])(?<!in )({'|'.join(words)})(?!\w)", re.IGNORECASE)
    if not pattern.search(text):
        return
    tree = ast.parse(text)
    for line, docstring in [(1, (ast.get_docstring(tree) or "").partition("\n")[0]), *_documented(tree)]:
        prose = re.sub(r"``.*?``|`.*?`", "", docstring, flags=re.DOTALL)
        prose = re.sub(r"(?:^|(?<=; )) *(?:\w+, )*\w+:", "", prose, flags=re.MULTILINE)
        for match in pattern.finditer(prose):
            yield f"{path}:{line}: {match[0]}"


def test_public_docstrings_use_the_words_of_the_field():
    paths = [str(path) for path in _files() if path.suffix == ".py" and str(path).startswith(WINGS)]
    findings_of_all = [line for path in paths for line in docstring_findings(path, (REPOSITORY / path).read_text())]
    assert not findings_of_all, "\n".join([f"{len(findings_of_all)} words", *findings_of_all])


@pytest.mark.parametrize("word", ["told", "place", "places", "behind", "beside", "slope", "Slopes"])
def test_a_word_of_docstrings_is_found(word):
    assert list(docstring_findings("runtime/a.py", f'"""The {word} of it."""\n'))
    assert list(
        docstring_findings("runtime/a.py", f'class A:\n    def b(self):\n        """The {word}\n        of it."""\n')
    )
    assert list(
        docstring_findings(
            "runtime/a.py", f'def b({word}):\n    """B.\n\n    Args:\n        {word}: a {word}.\n    """\n'
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        '"""Written in place, of in-place inputs."""\n',
        'def _own():\n    """What it is told."""\n',
        'def a(places):\n    """B at `places`.\n\n    Args:\n        places: of it.\n    """\n',
    ],
)
def test_other_words_are_not_found(text):
    assert not list(docstring_findings("runtime/a.py", text))


def misplaced_lines(text):
    """Lines in docstrings' lists of arguments that a reflow indented as if the line before named an argument."""
    if not re.search(r"^ *(?:Args|Attributes):\n(?: .*\n)*? {9,}\S", text, re.MULTILINE):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for entries in re.findall(
                r"^(?:Args|Attributes):\n((?: .*\n?)*)", ast.get_docstring(node) or "", re.MULTILINE
            ):
                yield from (line.strip() for line in entries.splitlines() if re.match(r" {9,}\S", line))


def test_no_docstring_is_garbled_by_a_reflow():
    paths = [str(path) for path in _files() if path.suffix == ".py" and str(path).startswith(WINGS)]
    misplaced = {path: lines for path in paths if (lines := list(misplaced_lines((REPOSITORY / path).read_text())))}
    assert not misplaced


def test_a_garbled_docstring_is_found():
    text = 'def a(b):\n    """A.\n\n    Args:\n        b: of\n            CUDA: a\n                c.\n    """\n'
    assert list(misplaced_lines(text)) == ["c."]


def test_contexts_have_scopes():
    """Each entry with a context is refused somewhere, and each scope belongs to an entry."""
    entries = {f"{word} for {context}" for word, context in retired().items() if context}
    assert set(SCOPES) == entries
    for scope in SCOPES.values():
        for part in scope:
            found = (
                (REPOSITORY / part).exists() if part.endswith("/") else any(REPOSITORY.glob(part.replace("*", "**/*")))
            )
            assert found, part


@pytest.mark.parametrize("word", sorted(retired()))
def test_a_retired_word_is_found(word):
    """In a docstring, a comment and a message; as a name, an argument, an attribute and a part of each."""
    phrase = " " in word
    name = word.replace(" ", "_")
    prose = {
        "doc.md": f"A line with {word} in it.\n",
        "runtime/a.py": f'"""First.\n\nSee {word}."""\n',
        "runtime/b.py": f"x = 1  # the {word} of it\n",
        "runtime/c.py": f'raise ValueError(f"{{x}}: {word}")\n',
        "tests/d.py": f'LIMIT = 1\n"""The {word}."""\n',
    }
    sources = {} if word in NAMES_ONLY else prose
    if not phrase:
        sources |= {
            "runtime/e.py": f"def of(first, first_{name}=1): ...\n",
            "runtime/f.py": f"x.{name}_of = 1\n",
            "tests/g.py": f"class My{name.capitalize()}Reader: ...\n",
            "tests/h.py": f"{name.upper()}_LIMIT = 1\n",
            "tests/i.py": f"def test_the_{name}_of_a_plan(): ...\n",
            f"ops/{name}_kernel.py": "x = 1\n",
        }
    for path, text in sources.items():
        assert findings(path, text, (word,)), path
    assert not findings("tests/j.py", f'x = "{word}"\n', (word,))
    assert not findings("runtime/k.py", "x = 1\n", (word,))
