"""Operators without a gradient, and why; docs/GRADIENTS.md lists them."""

from __future__ import annotations

INTEGERS = "its results are integers, which do not change by small amounts"
QUANTIZED = "its weights are quantized; dequantize them to train"
CACHED = "it writes to a cache of keys and values, for generation; use Attention"
SEQUENCES = "it handles sequences of tensors, for which gradients are not added up; use tensors"
STRINGS = "it works on strings or files"
PLACED = "passes place it in a graph for one device; differentiate the graph before"
OLD = "it is replaced when a model is opened"
FOREST = "its results are constant between the thresholds of trees"
CLASSES = "it belongs to a trained classical model, which runs and is not trained"

REASONS = {
    **dict.fromkeys(("ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "NonMaxSuppression"), INTEGERS),
    **dict.fromkeys(
        ("GatherBlockQuantized", "MatMulBnb4", "MatMulNBits", "QMoE", "DynamicQuantizeLSTM"), QUANTIZED
    ),
    "PagedAttention": CACHED,
    **dict.fromkeys(
        (
            "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
            "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
            "SplitToSequence",
        ),
        SEQUENCES,
    ),
    **dict.fromkeys(
        ("ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        STRINGS,
    ),
    **dict.fromkeys(("AllGather", "AllReduce", "BlockedConv", "BlockedMean"), PLACED),
    **dict.fromkeys(("Gradient", "Scatter", "Upsample"), OLD),
    **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), FOREST),
    **dict.fromkeys(
        (
            "ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer",
            "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder",
            "SVMClassifier", "SVMRegressor", "Scaler", "ZipMap",
        ),
        CLASSES,
    ),
}  # fmt: skip
"""Why an operator has neither a gradient rule nor a decomposition."""
