"""Classes of modules in checkpoints of whole models (`torch.save(model)`): torch's layers, and those of ultralytics'
detectors. They are kept as records that hold their state. Functions are not among them, nor are objects made with
arguments, which pickles of modules do not have."""

TORCH = {
    "activation": "GELU Hardsigmoid Hardswish LeakyReLU Mish PReLU ReLU ReLU6 SiLU Sigmoid Softmax Tanh",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
    "container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "dropout": "Dropout Dropout1d Dropout2d Dropout3d",
    "flatten": "Flatten Unflatten",
    "linear": "Bilinear Identity Linear",
    "module": "Module",
    "loss": "BCELoss BCEWithLogitsLoss CrossEntropyLoss MSELoss",
    "normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": "ReflectionPad2d ReplicationPad2d ZeroPad2d",
    "pooling": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool1d AvgPool2d MaxPool1d MaxPool2d",
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "rnn": "GRU LSTM RNN",
    "sparse": "Embedding EmbeddingBag",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}
"""Classes by module of ``torch.nn.modules``."""
MODELS = "ClassificationModel DetectionModel OBBModel PoseModel SegmentationModel"
BLOCKS = (
    "A2C2f AAttn ABlock AConv ADown Attention BNContrastiveHead Bottleneck BottleneckCSP C1 C2 C2PSA C2f "
    "C2fAttn C2fCIB C2fPSA C3 C3Ghost C3TR C3f C3k C3k2 C3x CBFuse CBLinear CIB ContrastiveHead DFL ELAN1 "
    "GhostBottleneck HGBlock HGStem ImagePoolingAttn MaxSigmoidAttnBlock PSA PSABlock Proto RepBottleneck "
    "RepC3 RepCSP RepNCSPELAN4 RepVGGDW ResNetBlock ResNetLayer SCDown SPP SPPELAN SPPF"
)
CONVS = (
    "CBAM ChannelAttention Concat Conv Conv2 ConvTranspose DWConv DWConvTranspose2d Focus GhostConv Index LightConv "
    "RepConv SpatialAttention"
)
HEADS = "Classify Detect LRPCHead OBB Pose RTDETRDecoder Segment v10Detect"
ULTRALYTICS = {
    "nn.tasks": MODELS,
    "nn.modules.block": BLOCKS,
    "nn.modules.conv": CONVS,
    "nn.modules.head": HEADS,
    "nn.modules": f"{BLOCKS} {CONVS} {HEADS}",
    "utils": "IterableSimpleNamespace",
    "utils.loss": "BboxLoss KeypointLoss v8DetectionLoss v8PoseLoss",
    "utils.tal": "TaskAlignedAssigner",
}
"""Classes by module of ``ultralytics``; the first releases have all layers in one module."""
MODULE_CLASSES = frozenset(
    f"{package}.{module}.{name}"
    for package, table in (("torch.nn.modules", TORCH), ("ultralytics", ULTRALYTICS))
    for module, names in table.items()
    for name in names.split()
)
