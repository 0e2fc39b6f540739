"""Text that follows grammars: JSON that jsonschema accepts, and text that regular expressions match."""

import json
import re
from types import SimpleNamespace

import candle_convert as cc
import jsonschema
import pytest
from candle_convert import models
from candle_convert.models.generation.batching.engine import Engine
from candle_convert.models.generation.batching.request import Request
from candle_convert.models.generation.sampling import Sampling
from candle_convert.tests.builders.paths import EXAMPLES

pytest.importorskip("llguidance")

from candle_convert.models.generation.batching.grammar import GrammarCompiler

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 200},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model():
    return models.load(EXAMPLES / "tiny_llama", threads=1)


@pytest.fixture(scope="module")
def compiler(model):
    return GrammarCompiler(model.tokenizer)


def texts(model, grammars, seeds=range(4)):
    """Texts of all grammars at once, next to one without."""
    engine = Engine(model)
    ids = model.tokenizer.encode("And God said unto")
    free = engine.submit(Request(ids, 20, Sampling(temperature=0)))
    handles = [
        [engine.submit(Request(ids, 120, Sampling(), seed=seed, constraint=grammar.constraint())) for seed in seeds]
        for grammar in grammars
    ]
    found = [[handle.text() for handle in row] for row in handles]
    assert {handle.finish_reason for row in handles for handle in row} == {"stop"}
    assert free.text() == model.generate(ids, max_tokens=20, temperature=0)
    engine.close()
    return found


def test_texts_follow_their_grammars(model, compiler):
    grammars = [
        compiler.json_schema(json.dumps(SCHEMA)),
        compiler.regex("[a-f]{3}-[0-9]{2,4}"),
        compiler.grammar('root ::= "yes" | "no " [0-9]+ "."'),
    ]
    schema, regex, grammar = texts(model, grammars)
    for text in schema:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(schema)) > 1
    assert all(re.fullmatch("[a-f]{3}-[0-9]{2,4}", text) for text in regex)
    assert all(re.fullmatch("yes|no [0-9]+[.]", text) for text in grammar)


def test_a_batch_follows_a_grammar(model, compiler):
    made = model.generate_batch(["Hello", "And"], seed=3, grammar=compiler.regex("[0-9]{4}"))
    assert [bool(re.fullmatch("[0-9]{4}", one.text)) for one in made] == [True, True]
    assert [one.reason for one in made] == ["end", "end"]


@pytest.mark.parametrize(("kind", "text"), [("json_schema", "{"), ("regex", "("), ("grammar", "root ::= x")])
def test_invalid_grammars(compiler, kind, text):
    with pytest.raises(cc.UsageError) as error:
        getattr(compiler, kind)(text)
    assert error.value.code == "E-GRAMMAR"


def test_a_tokenizer_without_an_end():
    with pytest.raises(cc.UnsupportedError) as error:
        GrammarCompiler(SimpleNamespace(ends=frozenset()))
    assert error.value.code == "E-GRAMMAR-END"
