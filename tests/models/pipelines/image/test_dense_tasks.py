"""Segments and boxes of pictures: as transformers finds them with its image processors on Pillow."""

import numpy as np
import torch
from candle_convert import models
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.pictures import MADE

PICTURES = list(MADE[:2])
SIZES = [picture.shape[:2] for picture in PICTURES]


def test_segments(tmp_path):
    from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil

    shape = {"depths": [1] * 4, "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 2, 4]}
    model = image_model("SegformerForSemanticSegmentation", **shape, num_labels=4, decoder_hidden_size=16)
    processor = SegformerImageProcessorPil(size={"height": 64, "width": 64})
    processor.save_pretrained(saved(model, tmp_path))
    with torch.no_grad():
        outputs = model(**processor(PICTURES, return_tensors="pt"))
    expected = processor.post_process_semantic_segmentation(outputs, SIZES)
    found = models.load(tmp_path, threads=1).predict(PICTURES, batch=2)
    for rows, classes in zip(found, expected, strict=True):
        ours = np.full(classes.shape, -1)
        for row in rows:
            ours[row["mask"]] = int(row["label"].removeprefix("LABEL_"))
        assert (ours == classes.numpy()).mean() > 0.999


def test_boxes(tmp_path):
    from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

    shape = {"image_size": [64, 96], "patch_size": 16, "hidden_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "intermediate_size": 32, "num_detection_tokens": 6, "num_labels": 4}
    model = image_model("YolosForObjectDetection", **shape, **heads)
    processor = YolosImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96})
    processor.save_pretrained(saved(model, tmp_path))
    found = models.load(tmp_path, threads=1).predict(PICTURES, threshold=0.1, batch=2)
    for picture, size, rows in zip(PICTURES, SIZES, found, strict=True):
        with torch.no_grad():
            outputs = model(processor(picture, return_tensors="pt")["pixel_values"])
        (expected,) = processor.post_process_object_detection(outputs, 0.1, [size])
        order = np.argsort(-expected["scores"].numpy(), kind="stable")
        assert len(rows) == len(order) > 0
        assert np.allclose([row["score"] for row in rows], expected["scores"].numpy()[order], atol=1e-4)
        corners = [list(row["box"].values()) for row in rows]
        assert np.allclose(corners, expected["boxes"].numpy()[order], atol=0.02)
