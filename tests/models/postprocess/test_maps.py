"""Maps of classes and depth, and masks, in the size of the picture: as transformers computes them with torch."""

import numpy as np
import pytest
import torch
from candle_convert.models.postprocess import maps
from candle_convert.models.postprocess.segments import boxes_around, distinct, picture_masks, stability
from candle_convert.models.preprocess.image_processor import preparation_of

RNG = np.random.default_rng(4)
SIZES = ((97, 131), (40, 33), (7, 5), (300, 20))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_class_maps(size, monkeypatch):
    from transformers.modeling_outputs import SemanticSegmenterOutput
    from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil

    logits = RNG.normal(0, 1, (1, 9, 32, 28)).astype(np.float32)
    outputs = SemanticSegmenterOutput(logits=torch.from_numpy(logits))
    (expected,) = SegformerImageProcessorPil().post_process_semantic_segmentation(outputs, [size])
    for band in (maps.BAND, 1000):
        monkeypatch.setattr(maps, "BAND", band)
        assert (maps.class_map(logits[0], size) == expected.numpy()).mean() > 0.999


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_depth_maps(size):
    from transformers.modeling_outputs import DepthEstimatorOutput
    from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil

    depth = RNG.uniform(0, 9, (1, 28, 42)).astype(np.float32)
    outputs = DepthEstimatorOutput(predicted_depth=torch.from_numpy(depth))
    (expected,) = DPTImageProcessorPil().post_process_depth_estimation(outputs, [size])
    assert np.allclose(maps.depth_map(depth[0], size), expected["predicted_depth"].numpy(), atol=1e-4)


@pytest.mark.parametrize("size", [(97, 131), (200, 90), (64, 64)], ids=str)
def test_masks(size):
    from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

    settings = {"size": {"longest_edge": 64}, "pad_size": {"height": 64, "width": 64}}
    theirs, ours = (
        SamImageProcessorPil(**settings),
        preparation_of({"image_processor_type": "SamImageProcessor", **settings}),
    )
    picture = np.zeros((*size, 3), np.uint8)
    batch = theirs(picture, return_tensors="pt")
    logits = RNG.normal(0, 4, (1, 3, 16, 16)).astype(np.float32)
    (expected,) = theirs.post_process_masks(
        [torch.from_numpy(logits)], batch["original_sizes"], batch["reshaped_input_sizes"], binarize=False
    )
    _, (at,) = ours.batch([ours.prepare(picture)])
    assert np.allclose(picture_masks(logits[0], at), expected[0].numpy(), atol=1e-4)


def test_stability_and_boxes():
    from transformers.models.sam.image_processing_pil_sam import _batched_mask_to_box, _compute_stability_score

    coarse = torch.from_numpy(RNG.normal(0, 3, (6, 1, 8, 9)).astype(np.float32))
    logits = torch.nn.functional.interpolate(coarse, (40, 45), mode="bilinear")[:, 0]
    logits[5] = -9
    expected = torch.nan_to_num(_compute_stability_score(logits, 0.0, 1.0)).numpy()
    assert np.allclose(stability(logits.numpy()), expected)
    assert (boxes_around(logits.numpy() > 0) == _batched_mask_to_box(logits > 0).numpy()).all()


def test_distinct_masks_are_the_best_ones():
    boxes = np.array([[0, 0, 10, 10], [0, 1, 10, 11], [50, 0, 60, 10], [0, 0, 10, 10]], np.float32)
    assert distinct(boxes, np.array([0.7, 0.9, 0.8, 0.2]), 0.7).tolist() == [1, 2]
