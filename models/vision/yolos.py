"""YOLOS (Fang et al. 2021, arXiv:2106.00666): object detection with a vision transformer and detection tokens."""

from __future__ import annotations

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.patches import patch_embedding, positions
from ..layers.image.transformer import block, perceptron
from ..layers.image.vision_transformer import logits, pool, pooler
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, image_tasks, run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES, OBJECT_DETECTION, ClassTask
from ..schema.vit import HF_LAYERS, ImageSize, settle_vit, vit_keys, vit_modules

TASKS = (("ForObjectDetection", OBJECT_DETECTION), ("Model", IMAGE_FEATURES))
MODULES = (
    Module("det_token", hf="embeddings.detection_tokens"),
    Module("mid_pos_embed", hf="encoder.mid_position_embeddings"),
    Module("class_embed", hf="class_labels_classifier.layers"),
    Module("bbox_embed", hf="bbox_predictor.layers"),
    *vit_modules("encoder.layer.", HF_LAYERS),
)
KEYS = (
    *(row for row in vit_keys(ClassTask("Yolos", TASKS), 1e-12) if row.name != "image_size"),
    ImageSize(pair=True),
    Key("queries", "num_detection_tokens", "detection_token_count", None),
    Key("placed", "use_mid_position_embeddings", (), None, flag),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """As ViT, whose position embeddings have rows for the detection tokens, too.

    Raises FormatError for models that do not state the size of the images.
    """
    queries = weights["det_token"].shape[1]
    if config.image_size is None:
        why = "a yolos model needs image_size"
        raise FormatError("E-ARCH-KEYS", config.path, why, hint="Is its configuration whole?")
    settle_vit(config, weights, queries)
    head = weights.get("class_embed.2.weight")
    config.values["labels"] = None if head is None else head.shape[0] - 1
    config.values["queries"] = queries
    config.values["placed"] = "mid_pos_embed" in weights


def features(net: ImageNet) -> Value:
    """Normalized tokens: the class token, patches, then the tokens that find objects."""
    patches = patch_embedding(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj")
    batch = net.Concat(net.Shape(patches, start=0, end=1), [1, 1], axis=0)
    first, last = (net.Expand(net.vector(name), batch) for name in ("cls_token", "det_token"))
    x = net.Add(net.Concat(first, net.flatten(patches), last, axis=1), _placed(net, net.vector("pos_embed"), patches))
    for i in range(net.config.layers):
        x = block(net, x, f"blocks.{i}", net.config.heads)
        if net.has("mid_pos_embed") and i + 1 < net.config.layers:
            table = net.Squeeze(net.Slice(net.vector("mid_pos_embed"), [i], [i + 1], [0]), [0])
            x = net.Add(x, _placed(net, table, patches))
    return layer_norm(net, x, "norm", net.config.eps)


def _placed(net: ImageNet, table: Value, patches: Value) -> Value:
    """Position embeddings [1, tokens, width] for the size of `patches`."""
    rows, columns = net.config.grid
    first, middle, last = net.split(table, [1, rows * columns, net.config.queries], axis=1)
    placed: Value = net.Concat(first, positions(net, middle, net.config.grid, patches), last, axis=1)
    return placed


def detected(net: ImageNet) -> None:
    """Logits of the classes and of none, and boxes as center, width and height in shares of the image."""
    x = net.Slice(features(net), [-net.config.queries], [2**31 - 1], [1])
    net.output("logits", perceptron(net, x, "class_embed"))
    net.output("pred_boxes", net.Sigmoid(perceptron(net, x, "bbox_embed")))


ARCHITECTURES = (
    Architecture(
        "yolos",
        "YOLOS",
        ("yolos",),
        ("yolos",),
        KEYS,
        (),
        (
            Task(OBJECT_DETECTION, {MODEL: image_graph(detected)}, run_image_model),
            image_tasks(features, pool, logits, pooler)[1],
        ),
        settle=settle,
        prefixes=("vit.",),
        ignored=(),
        modules=MODULES,
        defaults={"yolos": {"num_attention_heads": 12}},
    ),
)
