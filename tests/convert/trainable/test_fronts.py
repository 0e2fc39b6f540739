"""Models by transformers' class names: outputs, losses and gradients are those of transformers."""

import warnings

import candle_convert as cc
import numpy as np
import pytest
import torch
import transformers
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.class_models import CASES, reference


@pytest.fixture(autouse=True)
def _strict():
    """What is not trained is said by a warning; no family here has such weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(torch|transformers)\b")
        yield


def feeds(name):
    random = np.random.RandomState(0)
    if "Image" in name:
        return {"pixel_values": random.randn(2, 3, 32, 32).astype(np.float32), "labels": random.randint(0, 2, 2)}
    ids, mask = random.randint(3, 99, (3, 11)), np.ones((3, 11), np.int64)
    mask[1, 7:] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    if "Question" in name:
        return {**given, "start_positions": random.randint(0, 8, 3), "end_positions": random.randint(0, 11, 3)}
    if "Sequence" in name:
        return {**given, "labels": random.randint(0, 2, 3)}
    if "Token" in name:
        return {**given, "labels": random.randint(0, 2, (3, 11))}
    return {**given, "labels": np.where(mask == 1, ids, -100)} if "LM" in name else given


def loss_of(outputs):
    return outputs["loss"] if "loss" in outputs else (outputs["last_hidden_state"][0] ** 2).sum()


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_of_transformers(name, tmp_path):
    theirs = reference(name, tmp_path)
    ours = getattr(cc.models, name).from_pretrained(tmp_path)
    given = feeds(name)
    found = ours(**given)
    expected = theirs(**{key: torch.tensor(value) for key, value in given.items()})
    seen = given.get("attention_mask", np.ones(0)) == 1
    for key, value in found.items():
        array, other = value.detach().numpy(), expected[key].detach().numpy()
        if array.shape[:2] == seen.shape:
            array, other = array[seen], other[seen]
        np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-5, err_msg=key)
    loss_of(found).backward()
    loss_of(expected).backward()
    slopes = {each: tensor.grad for each, tensor in theirs.named_parameters() if tensor.grad is not None}
    named = dict(ours.named_parameters())
    if name != "ViTForImageClassification":  # transformers converts its names when it writes files
        assert named.keys() >= slopes.keys()
    largest = max(float(slope.abs().max()) for slope in slopes.values())
    for each in named.keys() & slopes.keys():
        slope = slopes[each].numpy()
        bound = 1e-4 * (np.abs(slope).max() + 1e-3 * largest)
        np.testing.assert_allclose(named[each].grad.numpy(), slope, rtol=1e-4, atol=bound, err_msg=each)


@pytest.mark.parametrize(
    "name", [each for each in CASES if each.startswith(("Bert", "Dist", "Llama", "GPT2", "Qwen2"))]
)
def test_new_models(name, tmp_path):
    """A configuration makes the parameters that transformers makes, distributed alike; it reads what is saved."""
    theirs = getattr(transformers, name)(getattr(transformers, name).config_class(**CASES[name]))
    cc.manual_seed(0)
    ours = getattr(cc.models, name)(theirs.config)
    assert ours.training
    shapes = {each: tuple(tensor.shape) for each, tensor in theirs.named_parameters()}
    named = dict(ours.named_parameters())
    assert {each: tensor.shape for each, tensor in named.items()} == shapes
    for each, tensor in theirs.named_parameters():
        if tensor.numel() > 1000 and "c_proj" not in each:  # GPT-2 scales these by its depth
            assert named[each].std().item() == pytest.approx(tensor.std().item(), rel=0.15)
        elif tensor.ndim == 1:
            np.testing.assert_array_equal(named[each].detach().numpy(), tensor.detach().numpy(), err_msg=each)
    ours.eval().save_pretrained(tmp_path)
    given = {"input_ids": np.array([[5, 6, 7]])}
    expected = type(theirs).from_pretrained(tmp_path).eval()(input_ids=torch.tensor(given["input_ids"]))
    np.testing.assert_allclose(ours(**given)[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("BertModel", 3, "E-MODEL-CONFIG"),
        ("BertModel", {"hidden_size": 32}, "E-ARCH-KEYS"),
        ("BertModel", {**CASES["LlamaModel"], "model_type": "llama"}, "E-MODEL-CLASS"),
        ("ViTForImageClassification", CASES["ViTForImageClassification"], "E-MODEL-CONFIG"),
        ("BertModel", "no/config.json", "E-IO-OPEN"),
    ],
    ids=str,
)
def test_configurations_that_make_no_model(name, config, code):
    with pytest.raises(cc.Error, match=code):
        getattr(cc.models, name)(config)


def test_a_saved_model_is_the_same_in_transformers(tmp_path):
    theirs = reference("GPT2LMHeadModel", tmp_path / "a")
    ours = cc.models.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    with cc.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(1.5)
    ours.save_pretrained(tmp_path / "b")
    read = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "b").eval()
    for (name, one), (_, other) in zip(theirs.named_parameters(), read.named_parameters(), strict=True):
        np.testing.assert_array_equal(one.detach().numpy() * np.float32(1.5), other.detach().numpy(), err_msg=name)


def test_a_new_head_is_drawn_with_names_of_labels(tmp_path):
    reference("BertModel", tmp_path)
    kind = cc.models.BertForSequenceClassification
    cc.manual_seed(3)
    model = kind.from_pretrained(tmp_path, id2label={0: "no", 1: "yes", 2: "perhaps"})
    assert model.opened.new == ["classifier.weight", "classifier.bias"]
    assert model.config.num_labels == 3
    assert model(**{key: feeds("BertModel")[key] for key in ("input_ids",)}).logits.shape == (3, 3)
    model.save_pretrained(tmp_path / "saved")
    read = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert read.config.id2label == {0: "no", 1: "yes", 2: "perhaps"}
    np.testing.assert_array_equal(
        read.classifier.weight.detach().numpy(), model.state_dict()["classifier.weight"].numpy()
    )


def test_a_quantized_gguf_file_is_trained_as_f32(tmp_path):
    reference("LlamaForCausalLM", tmp_path / "llama")
    cc.convert(tmp_path / "llama", tmp_path / "llama.gguf")
    ours = cc.models.LlamaForCausalLM.from_pretrained(tmp_path / "llama")
    read = cc.models.LlamaForCausalLM.from_pretrained(tmp_path / "llama.gguf")
    assert dict(read.named_parameters()).keys() == dict(ours.named_parameters()).keys()
    given = feeds("LlamaForCausalLM")
    np.testing.assert_allclose(
        read(**given).logits.detach().numpy(), ours(**given).logits.detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "GPT2LMHeadModel"])
def test_elements_are_dropped_in_training_only(name, tmp_path):
    rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    if name.startswith("GPT2"):
        rates = {"resid_pdrop": 0.5, "attn_pdrop": 0.5, "embd_pdrop": 0.5}
    reference(name, tmp_path, **rates)
    model = getattr(cc.models, name).from_pretrained(tmp_path)
    given = feeds(name)
    assert model(**given).loss.item() == model(**given).loss.item()
    model.train()
    losses = []
    for seed in (1, 1, 2):  # the first call, which traces the graph, draws the same numbers as the second
        cc.manual_seed(seed)
        losses.append(model(**given).loss.item())
    assert losses[0] == losses[1] != losses[2]
    plain = getattr(cc.models, name).from_pretrained(tmp_path, **dict.fromkeys(rates, 0.0)).train()
    model.eval()
    np.testing.assert_allclose(plain(**given).loss.item(), model(**given).loss.item(), rtol=1e-6)


def test_errors_name_the_class_that_fits(tmp_path):
    reference("BertModel", tmp_path)
    with pytest.raises(UsageError, match=r"not of the class LlamaForCausalLM.*AutoModelForCausalLM"):
        cc.models.LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match="not supported for text-generation"):
        cc.models.AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match="does not take pixel_values"):
        cc.models.AutoModel.from_pretrained(tmp_path)(np.ones((1, 2), int), pixel_values=np.ones((1, 3, 8, 8)))
    (tmp_path / "config.json").unlink()
    with pytest.raises(FormatError, match=r"config\.json"):
        cc.models.AutoModel.from_pretrained(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'BertForDreams'"):
        _ = cc.models.BertForDreams


def test_exported_graphs_are_not_trained(tmp_path):
    reference("BertModel", tmp_path / "a")
    cc.convert(tmp_path / "a", tmp_path / "b", to="onnx")
    with pytest.raises(cc.UnsupportedError, match="E-MODEL-GRAPH"):
        cc.models.BertModel.from_pretrained(tmp_path / "b")
