"""LinearClassifier and LinearRegressor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.ir.op import Tolerance, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32
from ..rules.axes import input_error
from .class_scores import NAMES, chosen, floats, labels_of, of_two, rows_of, transformed
from .feature import DOMAIN

COEFFICIENTS = [0.5, -1.0, 0.25, 0.75, 1.5, -0.5, -0.25, 1.0, 2.0]
CLOSE = Tolerance(rtol=1e-4, atol=1e-5)


def _products(operator: str, x: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray, count: int) -> np.ndarray:
    rows = rows_of(operator, x).astype(np.float32)
    if coefficients.size != count * rows.shape[1] or intercepts.size not in (0, count):
        why = "coefficients do not fit the features"
        raise input_error(operator, why, "E-OP-ATTRIBUTE", expected=count * rows.shape[1], found=coefficients.size)
    scores = rows @ coefficients.reshape(count, -1).T
    return np.asarray(scores + intercepts if intercepts.size else scores)


def infer_linear_classifier(node: Inference) -> None:
    """One label and the scores of all classes for every row."""
    chosen(node, "classlabels_strings", "classlabels_ints")


@op(
    "LinearClassifier",
    DOMAIN,
    since=1,
    types="index+wide -> 2",
    infer=infer_linear_classifier,
    tolerance=CLOSE,
    examples=[
        *(
            case(
                "f32[2,3]",
                classlabels_ints=[4, 5, 6],
                coefficients=COEFFICIENTS,
                intercepts=[0.5, 0.0, -0.5],
                post_transform=name,
                outputs=2,
            )
            for name in NAMES[:4]
        ),
        case(
            "f32[4,3]", classlabels_strings=["no", "yes"], coefficients=COEFFICIENTS[:3], intercepts=[0.25], outputs=2
        ),
        case(
            "i64[2,3]",
            classlabels_ints=[1, 2],
            coefficients=COEFFICIENTS[:6],
            intercepts=[0.25, 0.5],
            outputs=2,
            multi_class=1,
        ),
    ],
)
def linear_classifier(
    x: np.ndarray,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N] and f32 scores [N, classes] of the classes whose product with the features is the greatest; two
    classes may share one product."""
    labels = labels_of("LinearClassifier", classlabels_strings, classlabels_ints)
    count = len(intercepts) if intercepts else len(labels)
    scores = _products("LinearClassifier", x, floats(coefficients), floats(intercepts), count)
    if count == 1 and len(labels) == 2:
        return labels[(scores[:, 0] > 0).astype(np.int64)], of_two(
            "LinearClassifier", scores[:, 0], post_transform, True
        ).astype(np.float32)
    if count != len(labels):
        why = "there are not as many intercepts as labels"
        raise input_error("LinearClassifier", why, "E-OP-ATTRIBUTE", expected=len(labels), found=count)
    return labels[np.argmax(scores, axis=1)], transformed("LinearClassifier", scores, post_transform).astype(np.float32)


def infer_linear_regressor(node: Inference) -> None:
    """One number for each target for every row."""
    shape = node.shape(0)
    node.set(0, F32, (None if shape is None else shape[0] if len(shape) == 2 else 1, node.attributes["targets"]))


@op(
    "LinearRegressor",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=infer_linear_regressor,
    tolerance=CLOSE,
    examples=[
        case("f32[2,3]", coefficients=COEFFICIENTS[:3], intercepts=[0.5]),
        case("f32[2,3]", coefficients=COEFFICIENTS[:6], targets=2),
        case("f32[2,3]", coefficients=COEFFICIENTS, targets=3, intercepts=[0.1, 0.2, 0.3], post_transform="SOFTMAX"),
        case("f32[0,3]", coefficients=COEFFICIENTS[:3]),
    ],
)
def linear_regressor(
    x: np.ndarray,
    *,
    coefficients: Sequence[float] | None = None,
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> np.ndarray:
    """Products of the features with the coefficients of each target, plus its intercept, [N, targets] in f32."""
    products = _products("LinearRegressor", x, floats(coefficients), floats(intercepts), targets)
    return transformed("LinearRegressor", products, post_transform).astype(np.float32)
