"""MTCNN (Zhang et al. 2016, arXiv:1604.02878): faces and five landmarks, by three networks that each judge what the one
before proposes."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, Architecture, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv
from ..layers.image.image_net import ImageNet
from ..layers.linear import linear
from ..pipelines.image.face_cascade import OUTPUT, PROPOSAL, REFINEMENT, FaceCascade
from ..pipelines.image.image_tasks import image_graph
from ..schema.network_hyperparameters import FACE_DETECTION, ClassTask, Implied

MARKS = ("pnet.conv4_2.weight", "rnet.dense5_2.weight", "onet.dense6_3.weight")


def propose(net: ImageNet) -> None:
    """``scores`` [batch, rows, columns] of windows of 12 x 12 pixels, and ``offsets`` of their edges [batch, 4, rows,
    columns]."""
    x = net.pixels(f"{PROPOSAL}.conv1.weight")
    x = _pooled(net, _conv(net, x, PROPOSAL, 1), 2)
    x = _conv(net, _conv(net, x, PROPOSAL, 2), PROPOSAL, 3)
    scores = net.Softmax(conv(net, x, f"{PROPOSAL}.conv4_1", padding=0), axis=1)
    net.output("scores", net.Gather(scores, 1, axis=1))
    net.output("offsets", conv(net, x, f"{PROPOSAL}.conv4_2", padding=0))


def refine(net: ImageNet) -> None:
    """``scores`` [batch] and ``offsets`` [batch, 4] of windows of 24 x 24 pixels."""
    x = _window(net, REFINEMENT, 24)
    x = _pooled(net, _conv(net, x, REFINEMENT, 1), 3)
    x = _pooled(net, _conv(net, x, REFINEMENT, 2), 3)
    x = _dense(net, _conv(net, x, REFINEMENT, 3), REFINEMENT, 4)
    _judged(net, x, f"{REFINEMENT}.dense5")


def decide(net: ImageNet) -> None:
    """``scores`` [batch], ``offsets`` [batch, 4] and ``landmarks`` [batch, 10], x of all five before y, of windows of
    48 x 48 pixels."""
    x = _window(net, OUTPUT, 48)
    for number, size in ((1, 3), (2, 3), (3, 2)):
        x = _pooled(net, _conv(net, x, OUTPUT, number), size)
    x = _dense(net, _conv(net, x, OUTPUT, 4), OUTPUT, 5)
    _judged(net, x, f"{OUTPUT}.dense6")
    net.output("landmarks", linear(net, x, f"{OUTPUT}.dense6_3"))


def _window(net: ImageNet, part: str, side: int) -> Value:
    channels = net.kernel(f"{part}.conv1.weight").shape[1]
    return net.input("pixel_values", "f32", ("batch", channels, side, side))


def _conv(net: ImageNet, x: Value, part: str, number: int) -> Value:
    slopes = net.Reshape(net.vector(f"{part}.prelu{number}.weight"), [-1, 1, 1])
    y: Value = net.PRelu(conv(net, x, f"{part}.conv{number}", padding=0), slopes)
    return y


def _pooled(net: ImageNet, x: Value, size: int) -> Value:
    """The largest element of each window, also of those that exceed the image."""
    y: Value = net.MaxPool(x, kernel_shape=[size, size], strides=[2, 2], ceil_mode=1)
    return y


def _dense(net: ImageNet, x: Value, part: str, number: int) -> Value:
    """A dense layer on all elements, channels last and columns first."""
    y = linear(net, net.Flatten(net.Transpose(x, perm=[0, 3, 2, 1]), axis=1), f"{part}.dense{number}")
    found: Value = net.PRelu(y, net.vector(f"{part}.prelu{number}.weight"))
    return found


def _judged(net: ImageNet, x: Value, stem: str) -> None:
    net.output("scores", net.Gather(net.Softmax(linear(net, x, f"{stem}_1"), axis=1), 1, axis=1))
    net.output("offsets", linear(net, x, f"{stem}_2"))


BUILDERS = {PROPOSAL: image_graph(propose), REFINEMENT: image_graph(refine), OUTPUT: image_graph(decide)}
ARCHITECTURES = (
    Architecture(
        "mtcnn",
        "MTCNN",
        (),
        ("mtcnn",),
        (ClassTask("Mtcnn", (("Model", FACE_DETECTION),)),),
        (),
        (Task(FACE_DETECTION, BUILDERS, FaceCascade),),
        implied=Implied("mtcnn", "mtcnn", {TIMM: MARKS}, (), task=FACE_DETECTION),
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, BUILDERS)),
    ),
)
