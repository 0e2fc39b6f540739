"""Operator variants on the device: uncommon attributes, dtypes and shapes."""

import ml_dtypes
import numpy as np
from candle_convert.tests.device_scripts.cached_attention_on_device import compared, floats

NAN, BF16 = np.nan, ml_dtypes.bfloat16
BOXES = np.array([[[0, 0, 1, 1], [0, NAN, 1, 1.1], [0, 0.1, 1, 1.1], [NAN, 0, 1, 1], [0, 0, 1, 1]]], np.float32)
SCORES = np.array([[[0.9, 0.8, NAN, 0.6, 0.5], [0.1, 0.2, 0.3, NAN, 0.7]]], np.float32)
LIMITS = [np.array([9]), np.array([0.5], np.float32)]
PLANE = [floats(1, 2, 5, 6), floats(2, 1, 3, 3), floats(2)]
LINE = [floats(2, 7, 3), floats(3, 1, 3), floats(3), floats(2, 2, 4, 3)]
CASES = [
    # operator, domain, inputs, attributes, outputs
    ("Shrink", "", [np.arange(-9, 9, dtype=np.int32)], {"lambd": 3.5, "bias": 1.5}, 1),
    ("Shrink", "", [np.arange(-9, 9)], {"lambd": 5.0}, 1),
    ("Range", "", [np.array(item, BF16) for item in (1, 4, 0.3)], {}, 1),
    ("NonMaxSuppression", "", [BOXES, SCORES, *LIMITS], {}, 1),
    ("NonMaxSuppression", "", [BOXES, SCORES, *LIMITS], {"center_point_box": 1}, 1),
    ("NonMaxSuppression", "", [BOXES, SCORES, *LIMITS, np.array([0.2], np.float32)], {}, 1),
    ("NonMaxSuppression", "", [BOXES, SCORES], {}, 1),
    ("CausalConvWithState", "com.microsoft", PLANE, {"ndim": 2, "dilation": 2}, 2),
    (
        "CausalConvWithState",
        "com.microsoft",
        [floats(1, 2, 3, 4, 5), floats(2, 1, 2, 3, 2)],
        {"ndim": 3, "activation": "silu"},
        2,
    ),
    ("CausalConvWithState", "com.microsoft", [*PLANE, floats(3, 1, 2, 5, 2)], {"ndim": 2, "state_window": 8}, 2),
    ("CausalConvWithState", "com.microsoft", LINE, {"channels_last": 1, "dilation": 2, "state_window": 2}, 2),
]


if __name__ == "__main__":
    for operator, domain, inputs, attributes, count in CASES:
        compared(f"{operator} {attributes}", operator, inputs, attributes, count, domain=domain)
    print(len(CASES))
