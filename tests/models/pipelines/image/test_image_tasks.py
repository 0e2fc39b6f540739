"""Labels and vectors of pictures: as transformers finds them with its image processors on Pillow."""

import json

import numpy as np
import pytest
import torch
from candle_convert import Error, UnsupportedError, UsageError, convert, models
from candle_convert.models.pipelines.image.image_classification import imagenet_labels
from candle_convert.models.pipelines.image.nearest_neighbors import vote
from candle_convert.models.preprocess.image_processor import preparation_of
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.pictures import MADE, pictures

SIZE = {"height": 48, "width": 48}
VIT = {
    "image_size": 48, "patch_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of transformers, its processor, and its directory."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    folder = tmp_path_factory.mktemp("vit")
    labels = {number: f"kind {number}" for number in range(7)}
    model = image_model("ViTForImageClassification", **VIT, num_labels=7, id2label=labels)
    processor = ViTImageProcessorPil(size=SIZE)
    processor.save_pretrained(saved(model, folder))
    return model, processor, folder


def test_labels_are_those_of_transformers(classifier):
    model, processor, folder = classifier
    ours = models.load(folder, threads=1)
    with torch.no_grad():
        scores = model(**processor(pictures(), return_tensors="pt")).logits.softmax(-1).numpy()
    found = ours.predict(pictures(), top=None, batch=3)
    for rows, expected in zip(found, scores, strict=True):
        assert [row["label"] for row in rows] == [f"kind {number}" for number in np.argsort(-expected)]
        assert [row["score"] for row in rows] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)
    assert ours.predict(MADE[0], top=2) == ours.predict([MADE[0]], top=2)[0]
    assert ours.predict([]) == []


def test_exported_models_find_the_same(classifier, tmp_path):
    ours = models.load(classifier[2], threads=1)
    convert(classifier[2], tmp_path, to="onnx")
    exported = models.load(tmp_path, threads=1)
    assert exported.task == "image-classification"
    for rows, others in zip(ours.predict(list(MADE)), exported.predict(list(MADE)), strict=True):
        assert [row["label"] for row in rows] == [row["label"] for row in others]
        assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in others], abs=1e-5)
    with pytest.raises(UsageError, match="does not support the task"):
        models.load(tmp_path, threads=1, task="object-detection")


def test_progress_and_options(classifier):
    told = []
    ours = models.load(classifier[2], threads=1)
    ours.predict(list(MADE), batch=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(3, 4), (4, 4)]
    with pytest.raises(UsageError, match="no option threshold"):
        ours.predict(MADE[0], threshold=0.5)
    other = preparation_of({"size": SIZE, "image_mean": 0.1})
    assert ours.predict(MADE[0], preparation=other) != ours.predict(MADE[0])


def test_vectors_are_those_of_transformers(tmp_path):
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

    model = image_model("Dinov2Model", **{**VIT, "patch_size": 12})
    processor = BitImageProcessorPil(size={"shortest_edge": 52}, crop_size=SIZE)
    processor.save_pretrained(saved(model, tmp_path))
    with torch.no_grad():
        expected = model(**processor(pictures(), return_tensors="pt")).pooler_output.numpy()
    ours = models.load(tmp_path, threads=1)
    assert np.allclose(ours.embed(pictures(), 2), expected, atol=1e-4)
    assert np.allclose(ours.embed(pictures()[0]), expected[0], atol=1e-4)
    assert np.allclose(np.linalg.norm(ours.embed(pictures(), normalize=True), axis=1), 1, atol=1e-5)


def test_a_model_without_preparation_is_refused(classifier, tmp_path):
    saved(classifier[0], tmp_path)
    ours = models.load(tmp_path, threads=1)
    with pytest.raises(UnsupportedError) as caught:
        ours.predict(MADE[0])
    assert caught.value.code == "E-PREPROCESSOR-NONE"
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"] = {"input_size": [3, 48, 48], "mean": [0.5] * 3, "std": [0.5] * 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert len(models.load(tmp_path, threads=1).predict(MADE[0])) == 5


def test_names_of_imagenet(tmp_path):
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    assert len(imagenet_labels()) == 1000
    assert imagenet_labels()[:2] == ("tench", "goldfish")
    assert imagenet_labels()[281] == "tabby"
    model = image_model("ViTForImageClassification", **VIT, num_labels=1000)
    ViTImageProcessorPil(size=SIZE).save_pretrained(saved(model, tmp_path))
    assert {row["label"] for row in models.load(tmp_path, threads=1).predict(MADE[0])} < set(imagenet_labels())


def test_votes():
    known = np.array([[1, 0], [0.9, 0.1], [0, 1], [-1, 0]], np.float32)
    (one, two) = vote(np.array([[1, 0.05], [0, 1]], np.float32), known, ["a", "a", "b", "c"], 3)
    assert (one.label, one.nearest, two.label, two.nearest) == ("a", 0, "b", 2)
    assert one.score > 0.9
    assert vote(known[3:], known[:1], ["a"], 1)[0].score == 0


@pytest.mark.parametrize(
    "size", [{"height": 6000, "width": 6000}, {"height": 600, "width": 32}, {"shortest_edge": 300}]
)
def test_pictures_out_of_proportion_to_the_model_are_refused(size, tmp_path):
    """A line of preprocessor_config.json sizes the pictures, whose positions a ViT interpolates: attention over 562,500
    patches, of a model for 16. transformers refuses any size but the model's own."""
    small = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    folder = saved(image_model("ViTForImageClassification", intermediate_size=64, num_labels=3, **small), tmp_path)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", "size": size})
    )
    with pytest.raises(Error) as caught:
        models.load(folder).predict(np.zeros((40, 50, 3), np.uint8))
    assert caught.value.code in ("E-PREPROCESSOR-SIZE", "E-PREPROCESSOR")
