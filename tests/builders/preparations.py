"""Preparations of pictures as files of models state them, one of each kind."""

SIZE = {"height": 48, "width": 48}
PREPARATIONS = {
    "exact": {"image_processor_type": "ViTImageProcessor", "size": SIZE},
    "cubic": {"image_processor_type": "BeitImageProcessor", "size": SIZE},
    "nearest": {"image_processor_type": "ViTImageProcessor", "size": SIZE, "resample": 0},
    "crop": {"image_processor_type": "CLIPImageProcessor", "size": 60, "crop_size": 48},
    "crop_pct": {"image_processor_type": "ConvNextImageProcessor", "size": 48},
    "timm": {"input_size": [3, 48, 48], "crop_pct": 0.9},
    "squash": {"input_size": [3, 48, 48], "crop_pct": 0.9, "crop_mode": "squash", "interpolation": "bilinear"},
    "crop only": {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 48, "width": 48}},
    "bgr": {"image_processor_type": "ViTImageProcessor", "size": SIZE, "do_flip_channel_order": True},
    "small": {"image_processor_type": "ViTImageProcessor", "size": SIZE, "do_center_crop": True, "crop_size": 57},
    "edges": {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 48, "longest_edge": 56}},
    "edges to 16": {"image_processor_type": "YolosImageProcessor", "size": {"shortest_edge": 48, "longest_edge": 60}},
    "padded": {
        "image_processor_type": "SamImageProcessor", "size": {"longest_edge": 60},
        "pad_size": {"height": 64, "width": 64},
    },
    "around": {
        "image_processor_type": "DPTImageProcessor", "size": {"height": 50, "width": 47}, "resample": 2,
        "do_pad": True, "size_divisor": 32,
    },
    "multiples": {
        "image_processor_type": "DPTImageProcessor", "size": SIZE, "resample": 2, "ensure_multiple_of": 14,
        "keep_aspect_ratio": True,
    },
    "divisible": {"image_processor_type": "GLPNImageProcessor", "size_divisor": 16, "resample": 2},
    "timm's ratio": {"input_size": [3, 48, 40], "crop_pct": 0.9, "crop_mode": "border", "interpolation": "bilinear"},
}  # fmt: skip
