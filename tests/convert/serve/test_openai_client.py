"""OpenAI's Python client against every endpoint; results are compared with transformers and with the libraries that
decode pictures and sounds."""

import base64
import io
import json
import wave

import jsonschema
import numpy as np
import pytest

openai = pytest.importorskip("openai", reason="the client of OpenAI is the oracle")
pytest.importorskip("uvicorn", reason="the server needs uvicorn, of the extra serve")
torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from candle_convert.tests.builders.image_checkpoints import image_model, saved  # noqa: E402
from candle_convert.tests.builders.model_server import chat_model, request, serving  # noqa: E402
from candle_convert.tests.builders.musicgen import music_folder  # noqa: E402
from candle_convert.tests.builders.packaged_models import minilm  # noqa: E402
from candle_convert.tests.builders.speech_checkpoints import WHISPERS, whisper  # noqa: E402
from candle_convert.tests.builders.text_checkpoints import checkpoint  # noqa: E402
from candle_convert.tests.builders.text_to_image import stable_diffusion_3  # noqa: E402
from candle_convert.tests.builders.vision_language import (  # noqa: E402
    generated,
    processor_of,
    tokenizer_of,
    vision_language_folder,
)
from PIL import Image  # noqa: E402

PROMPT = "And God said unto"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of each kind, by name."""
    root = tmp_path_factory.mktemp("models")
    made = {"chat": chat_model(root / "chat"), "minilm": minilm()}
    for name in ("classifier", "speech", "drawer"):
        made[name] = root / name
        made[name].mkdir()
    checkpoint("BertForSequenceClassification", made["classifier"])
    whisper(WHISPERS[0], 0, made["speech"])
    stable_diffusion_3(made["drawer"], t5=False)
    made["music"] = music_folder(root / "music")
    made["llava"] = root / "llava"
    vision_language_folder("llava", made["llava"])
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    made["vision"] = saved(image_model("ViTForImageClassification", **sizes, intermediate_size=16), root / "vision")
    (made["vision"] / "preprocessor_config.json").write_text(
        '{"size": 16, "image_processor_type": "ViTImageProcessor"}'
    )
    return made


@pytest.fixture(scope="module")
def server(folders):
    words = [*folders.values(), *(word for name in folders for word in ("--alias", name)), "--threads", "1"]
    with serving(words) as started:
        yield started


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def reference(folders):
    """Greedy text of transformers, by prompt and number of tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["chat"])
    model = transformers.AutoModelForCausalLM.from_pretrained(folders["chat"], dtype=torch.float32)

    def text(prompt, count):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        made = model.generate(ids, max_new_tokens=count, do_sample=False)
        return tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)

    return text


def test_models(client, folders):
    assert [model.id for model in client.models.list()] == list(folders)
    assert client.models.retrieve("minilm").owned_by == "candle-convert"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


def test_completions(client, reference):
    made = client.completions.create(model="chat", prompt=[PROMPT, "In the beginning"], max_tokens=12, temperature=0)
    assert [choice.text for choice in made.choices] == [reference(PROMPT, 12), reference("In the beginning", 12)]
    assert {choice.finish_reason for choice in made.choices} == {"length"}
    assert made.usage.completion_tokens == 24
    assert made.usage.total_tokens == made.usage.prompt_tokens + 24


def test_completions_stream(client, reference):
    asked = {"model": "chat", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == reference(PROMPT, 12)
    assert len(chunks) > 8
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 12


def test_stop_seed_choices_bias_and_logprobs(client, reference):
    text = reference(PROMPT, 12)
    stop = text.split()[2]
    made = client.completions.create(model="chat", prompt=PROMPT, max_tokens=12, temperature=0, stop=[stop])
    assert (made.choices[0].text, made.choices[0].finish_reason) == (text.partition(stop)[0], "stop")
    sampled = [
        client.completions.create(model="chat", prompt=PROMPT, max_tokens=8, temperature=1.2, seed=seed, n=2)
        for seed in (7, 7, 8)
    ]
    texts = [[choice.text for choice in each.choices] for each in sampled]
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]
    assert texts[0][1] == texts[2][0]
    scored = client.completions.create(model="chat", prompt=PROMPT, max_tokens=3, temperature=0, logprobs=2).choices[0]
    assert scored.logprobs.token_logprobs[0] == max(scored.logprobs.top_logprobs[0].values())
    assert "".join(scored.logprobs.tokens) == scored.text
    assert [len(each) for each in scored.logprobs.top_logprobs] == [2, 2, 2]


def test_chat(client, folders, reference):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who spoke?"}]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["chat"])
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    asked = {"model": "chat", "messages": messages, "temperature": 0, "max_tokens": 10}
    made = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)
    assert made.choices[0].message.content == reference(prompt, 10)
    assert [len(each.top_logprobs) for each in made.choices[0].logprobs.content] == [3] * 10
    assert b"".join(bytes(each.bytes) for each in made.choices[0].logprobs.content).decode() == reference(prompt, 10)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(pieces) == reference(prompt, 10)
    assert chunks[-1].usage.total_tokens == made.usage.total_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0  # the prompt was computed before


def test_parts_of_texts_and_roles(client):
    parts = [{"type": "text", "text": "Who"}, {"type": "text", "text": "spoke?"}]
    asked = {"model": "chat", "temperature": 0, "max_tokens": 6}
    one = client.chat.completions.create(**asked, messages=[{"role": "developer", "content": parts}])
    two = client.chat.completions.create(**asked, messages=[{"role": "system", "content": "Who\nspoke?"}])
    assert one.choices[0].message.content == two.choices[0].message.content


def test_tools_reach_the_template(client):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Rain?"}], "max_tokens": 4, "temperature": 0}
    plain = client.chat.completions.create(**asked).usage.prompt_tokens
    assert client.chat.completions.create(**asked, tools=[tool]).usage.prompt_tokens > plain + 10
    without = {"type": "function", "function": {"name": "weather", "parameters": None}}
    assert client.chat.completions.create(**asked, tools=[without]).usage.prompt_tokens > plain
    assert client.chat.completions.create(**asked, tools=[tool], tool_choice="none").usage.prompt_tokens == plain
    with pytest.raises(openai.BadRequestError, match="no tools"):
        client.chat.completions.create(**asked, tool_choice="required")
    with pytest.raises(openai.BadRequestError, match="name of one of the tools"):
        client.chat.completions.create(
            **asked, tools=[tool], tool_choice={"type": "function", "function": {"name": "rain"}}
        )


def test_forced_calls(client):
    pytest.importorskip("llguidance", reason="grammars need llguidance, of the extra grammar")
    schema = {
        "type": "object",
        "properties": {"days": {"$ref": "#/$defs/days"}},
        "required": ["days"],
        "additionalProperties": False,
        "$defs": {"days": {"type": "integer", "minimum": 0, "maximum": 9}},
    }
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in ("weather", "rain")]
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Rain?"}], "max_tokens": 200}
    for chosen, names in (
        ("required", {"weather", "rain"}),
        ({"type": "function", "function": {"name": "rain"}}, {"rain"}),
    ):
        for seed in range(4):
            made = client.chat.completions.create(**asked, tools=tools, tool_choice=chosen, seed=seed).choices[0]
            (call,) = made.message.tool_calls
            assert (made.finish_reason, made.message.content) == ("tool_calls", None)
            assert call.function.name in names
            jsonschema.validate(json.loads(call.function.arguments), schema)


def test_answers_by_a_schema(client):
    pytest.importorskip("llguidance", reason="grammars need llguidance, of the extra grammar")
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 200, "seed": 1}
    stated = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    made = client.chat.completions.create(**asked, n=3, response_format=stated)
    for choice in made.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), schema)
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}}
    with pytest.raises(openai.BadRequestError, match="grammar cannot be used"):
        client.chat.completions.create(**asked, response_format=broken)


def test_embeddings(client, folders):
    texts = ["A man is eating food.", "Someone eats a meal.", "The market fell."]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["minilm"])
    model = transformers.AutoModel.from_pretrained(folders["minilm"])
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**encoded).last_hidden_state
    mask = encoded.attention_mask[..., None]
    expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1).numpy()
    made = client.embeddings.create(model="minilm", input=texts)  # the client asks for base64
    np.testing.assert_allclose([each.embedding for each in made.data], expected, atol=2e-5)
    assert made.usage.prompt_tokens == int(encoded.attention_mask.sum())
    plain = client.embeddings.create(model="minilm", input=texts[0], encoding_format="float").data[0].embedding
    np.testing.assert_allclose(plain, expected[0], atol=2e-5)
    ids = encoded.input_ids[0][encoded.attention_mask[0] == 1].tolist()
    np.testing.assert_allclose(
        client.embeddings.create(model="minilm", input=ids).data[0].embedding, expected[0], atol=2e-5
    )
    assert len(client.embeddings.create(model="minilm", input="a", dimensions=64).data[0].embedding) == 64
    status, _, content = request(client_server(client), "/embed", {"inputs": texts, "model": "minilm"})
    assert status == 200
    np.testing.assert_allclose(json.loads(content), expected, atol=2e-5)


def client_server(client):
    """What `request` needs of a server, from a client."""
    return type("Address", (), {"address": str(client.base_url).removesuffix("/v1/")})


def test_reranking_and_labels(server, folders):
    documents = ["Taxes rise.", "A cat naps on the sofa.", "Dogs bark."]
    body = {"model": "minilm", "query": "How do cats sleep?", "documents": documents, "top_n": 2}
    status, _, content = request(server, "/v1/rerank", {**body, "return_documents": True})
    found = json.loads(content)["results"]
    assert (status, [row["index"] for row in found]) == (200, [1, 2])
    assert found[0]["document"]["text"] == documents[1]
    tei = {"model": "minilm", "query": body["query"], "texts": documents, "return_text": True}
    rows = json.loads(request(server, "/rerank", tei)[2])
    assert [(row["index"], row["score"]) for row in rows][:2] == [
        (row["index"], row["relevance_score"]) for row in found
    ]
    pipeline = transformers.pipeline("text-classification", str(folders["classifier"]), top_k=None)
    (expected,) = pipeline(["a b"])
    labels = json.loads(request(server, "/predict", {"model": "classifier", "inputs": "a b"})[2])
    assert [row["label"] for row in labels] == [row["label"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in labels], [row["score"] for row in expected], atol=1e-4)
    several = json.loads(request(server, "/predict", {"model": "classifier", "inputs": [["a b"], ["a", "b"]]})[2])
    assert [row["label"] for row in several[0]] == [row["label"] for row in labels]
    np.testing.assert_allclose([row["score"] for row in several[0]], [row["score"] for row in labels], atol=1e-6)
    assert len(several) == 2


def picture():
    buffer = io.BytesIO()
    Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def test_labels_of_pictures(server, folders):
    content = base64.b64decode(picture().partition(",")[2])
    processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16})
    model = transformers.AutoModelForImageClassification.from_pretrained(folders["vision"])
    with torch.no_grad():
        logits = model(**processor(Image.open(io.BytesIO(content)).convert("RGB"), return_tensors="pt")).logits
    expected = logits.softmax(-1)[0].sort(descending=True)
    found = json.loads(request(server, "/predict", {"model": "vision", "inputs": picture()})[2])
    np.testing.assert_allclose([row["score"] for row in found], expected.values[: len(found)], atol=1e-4)
    for address in ("http://127.0.0.1:1/a.png", "/etc/passwd", "file:///etc/passwd", "data:image/png,abc"):
        status, _, content = request(server, "/predict", {"model": "vision", "inputs": address})
        assert (status, json.loads(content)["error"]["type"]) == (400, "invalid_request_error")


def test_chat_about_a_picture(client, folders):
    tokenizer = tokenizer_of("<image>")
    model = transformers.LlavaForConditionalGeneration.from_pretrained(folders["llava"], attn_implementation="eager")
    image = Image.open(io.BytesIO(base64.b64decode(picture().partition(",")[2]))).convert("RGB")
    marked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}]
    text = tokenizer.apply_chat_template(marked, tokenize=False, add_generation_prompt=True)
    inputs = processor_of("llava", tokenizer)(text=text, images=image, return_tensors="pt")
    inputs["input_ids"] = inputs["input_ids"][:, inputs["input_ids"][0, :2].eq(0).sum() - 1 :]  # one BOS
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    expected = tokenizer.decode(generated(model, inputs, 8), skip_special_tokens=True)
    parts = [{"type": "image_url", "image_url": {"url": picture()}}, {"type": "text", "text": "what?"}]
    asked = {"model": "llava", "messages": [{"role": "user", "content": parts}], "max_tokens": 8, "temperature": 0}
    made = client.chat.completions.create(**asked)
    assert made.choices[0].message.content == expected
    assert made.usage.prompt_tokens == inputs["input_ids"].shape[1]
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == expected
    many = [{"role": "user", "content": [parts[0]] * 17}]
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**{**asked, "messages": many})
    assert caught.value.status_code == 413
    parts[0]["image_url"]["url"] = "http://127.0.0.1:9/x.png"
    with pytest.raises(openai.BadRequestError, match="not a data: URL"):
        client.chat.completions.create(**asked)


def tone(seconds=1.0):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((8000 * np.sin(np.arange(int(16000 * seconds)) / 9)).astype("<i2").tobytes())
    return buffer.getvalue()


def test_transcriptions(client):
    asked = {"model": "speech", "file": ("tone.wav", tone()), "temperature": 0}
    made = client.audio.transcriptions.create(**asked)
    verbose = client.audio.transcriptions.create(**asked, response_format="verbose_json")
    assert verbose.text == made.text
    assert verbose.duration == pytest.approx(1)
    assert client.audio.transcriptions.create(**asked, response_format="vtt").startswith("WEBVTT")
    with pytest.raises(openai.BadRequestError):
        client.audio.transcriptions.create(model="speech", file=("tone.wav", b"no sound"))


def test_speech(client):
    asked = {"model": "music", "voice": "default", "input": "a piano", "extra_body": {"seed": 3, "max_seconds": 0.1}}
    sound = client.audio.speech.create(**asked, response_format="wav").read()
    with wave.open(io.BytesIO(sound)) as file:
        assert file.getnframes() > 0
        samples = file.readframes(file.getnframes())
    assert client.audio.speech.create(**asked, response_format="wav").read() == sound
    pcm = client.audio.speech.create(**asked, response_format="pcm").read()
    difference = np.frombuffer(pcm, "<i2").astype(int) - np.frombuffer(samples, "<i2").astype(int)
    assert np.abs(difference).max() <= 1
    with pytest.raises(openai.BadRequestError, match="has no voice"):
        client.audio.speech.create(model="music", voice="/etc/passwd", input="x")


def test_images(client):
    asked = {"model": "drawer", "prompt": "a fox", "size": "32x32", "extra_body": {"steps": 1, "seed": 5}}
    made = client.images.generate(**asked, n=2)
    pictures = [Image.open(io.BytesIO(base64.b64decode(each.b64_json))) for each in made.data]
    assert [picture.size for picture in pictures] == [(32, 32)] * 2
    assert pictures[0].tobytes() != pictures[1].tobytes()
    again = client.images.generate(**{**asked, "extra_body": {"steps": 1, "seed": 6}})
    assert Image.open(io.BytesIO(base64.b64decode(again.data[0].b64_json))).tobytes() == pictures[1].tobytes()
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.images.generate(**asked, response_format="url")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"no": 1}}, "logit_bias"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
            None,
        ),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_refused_chats(client, asked, param):
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "chat", "messages": messages, "max_tokens": 1, **asked})
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == (param or "messages[0].content[0]")


def test_refused_models_and_lengths(client):
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        client.completions.create(model="gpt-9", prompt="x")
    with pytest.raises(openai.BadRequestError, match="cannot chat"):
        client.chat.completions.create(model="minilm", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="chat", prompt="word " * 2000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="minilm", input="word " * 2000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="unknown token"):
        client.embeddings.create(model="minilm", input=[10**6])


def test_metrics_and_pages(server):
    assert request(server, "/v1/models")[0] == 200
    metrics = request(server, "/metrics")[2].decode()
    assert 'candle_convert_requests_total{endpoint="/v1/models",status="200"}' in metrics
    for path in ("/", "/docs"):
        status, headers, content = request(server, path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"https://" not in content
        assert b"http://" not in content
