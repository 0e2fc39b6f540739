"""Fields of requests take what their JSON schema takes, by jsonschema."""

import jsonschema
import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.endpoint import endpoints
from candle_convert.convert.serve.openapi import document
from candle_convert.convert.serve.requests.http_error import HTTPError
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDS = {
    endpoint.path: endpoint.fields for endpoint in endpoints() if endpoint.fields is not None and not endpoint.form
}
LEAVES = st.one_of(
    st.booleans(), st.integers(-3, 5), st.integers(), st.floats(allow_nan=False), st.text(max_size=4),
    st.sampled_from(["float", "base64", "auto", "none", "b64_json", "png", "mp3"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "type", "0", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("path", RECORDS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_field_takes_what_its_schema_takes(path, data):
    record = RECORDS[path]
    name = data.draw(st.sampled_from(sorted(record.fields)))
    value = data.draw(VALUES)
    field = record.fields[name]
    schema = field.kind.schema()
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    if isinstance(value, float) and value.is_integer() and "integer" in str(schema):
        return  # JSON schema takes 1.0 for an integer
    try:
        field.kind.read(value, name)
    except HTTPError as error:
        assert error.status == 400
        assert error.param.startswith(name)
        assert not valid or "unknown field" in error.message
    else:
        assert valid


@pytest.mark.parametrize("path", RECORDS)
def test_unknown_and_missing_fields_are_named(path):
    record = RECORDS[path]
    with pytest.raises(HTTPError, match="unknown field temprature") as caught:
        record.read({"temprature": 1})
    assert caught.value.code == "unknown_parameter"
    required = [name for name, field in record.fields.items() if field.required]
    with pytest.raises(HTTPError, match=f"missing field {required[0]}"):
        record.read({})
    with pytest.raises(HTTPError, match=f"missing field {required[0]}"):
        record.read({required[0]: None})


def test_the_document_is_openapi():
    found = document(endpoints(), keyed=True)
    assert found["openapi"].startswith("3.1")
    assert set(found["paths"]) >= {"/v1/chat/completions", "/v1/embeddings", "/rerank", "/health", "/"}
    for methods in found["paths"].values():
        for operation in methods.values():
            for content in operation.get("requestBody", {"content": {}})["content"].values():
                jsonschema.Draft202012Validator.check_schema(content["schema"])
