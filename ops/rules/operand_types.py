"""Allowed input dtypes and output counts of each operator.

Source: the type constraints of the newest definitions in onnx.defs, and of onnxruntime's operator schemas for
com.microsoft.
"""

from ...runtime.ir.operand_types import OperandTypes

SETS = {
    "half": "bf16 f16",
    "real": "bf16 f16 f32",
    "ieee": "f16 f32 f64",
    "float": "bf16 f16 f32 f64",
    "int": "i8 i16 i32 i64",
    "uint": "u8 u16 u32 u64",
    "byte": "i8 u8",
    "index": "i32 i64",
    "wide": "f32 f64",
    "complex": "c64 c128",
    "f8": "f8_e4m3 f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz",
    "short": "i16 u16",
    "integer": "i8 i16 i32 i64 u8 u16 u32 u64",
    "number": "bf16 f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    "tensor": "bf16 bool c64 c128 f16 f32 f64 i8 i16 i32 i64 string u8 u16 u32 u64",
    "any": "bf16 bool c64 c128 f4 f16 f32 f64 f8_e4m3 f8_e5m2 f8_e8m0 f8_e4m3fnuz f8_e5m2fnuz i2 i4 i8 "
    "i16 i32 i64 string u2 u4 u8 u16 u32 u64",
    "long": "i32 i64 u32 u64",
    "nibble": "i4 u4",
    "crumb": "i2 u2",
}
"""Names for sets of dtypes."""

INPUTS = {
    "float": "Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Ceil Celu Cos Cosh Det Elu Erf Exp Floor Gelu "
    "GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid HardSwish Hardmax LRN LeakyRelu Log LogSoftmax "
    "LpNormalization LpPool MeanVarianceNormalization Mish Multinomial Reciprocal Round Selu Sigmoid Sin Sinh "
    "Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu com.microsoft.Gelu com.microsoft.QuickGelu",
    "index+wide": "ai.onnx.ml.Binarizer ai.onnx.ml.Imputer ai.onnx.ml.LinearClassifier ai.onnx.ml.LinearRegressor "
    "ai.onnx.ml.Normalizer ai.onnx.ml.SVMClassifier ai.onnx.ml.SVMRegressor ai.onnx.ml.Scaler "
    "ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor",
    "T=number T": "Add Div Greater GreaterOrEqual Less LessOrEqual Mod Mul Sub",
    "T=float T T": "Conv ConvTranspose GroupNormalization InstanceNormalization LayerNormalization "
    "ai.onnx.preview.FlexAttention",
    "float+long i64": "ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare",
    "tensor": "DepthToSpace NonZero RandomNormalLike RandomUniformLike SpaceToDepth Unique",
    "tensor i64": "Expand GatherND ReverseSequence Split Tile Trilu",
    "T=byte f32 T f32 T": "com.microsoft.QLinearAveragePool com.microsoft.QLinearGlobalAveragePool "
    "com.microsoft.QLinearLeakyRelu "
    "com.microsoft.QLinearSigmoid com.microsoft.QLinearSoftmax",
    "T=float T": "MaxRoiPool SwiGLU com.microsoft.BiasGelu com.microsoft.FastGelu com.microsoft.FusedMatMul",
    "": "Constant RandomNormal RandomUniform SequenceEmpty",
    "T=integer T": "BitShift BitwiseAnd BitwiseOr BitwiseXor",
    "any": "Flatten Shape Size Transpose",
    "number": "Abs ArgMax ArgMin Sign",
    "tensor index": "CenterCropPad Gather GatherElements SplitToSequence",
    "T=real T T T": "CausalConvWithState com.microsoft.CausalConvWithState "
    "com.microsoft.SkipSimplifiedLayerNormalization",
    "any i64": "Reshape Squeeze Unsqueeze",
    "any+optional+sequence": "Identity OptionalGetElement OptionalHasElement",
    "bool bool": "And Or Xor",
    "float i64": "AffineGrid ReduceLogSum ReduceLogSumExp",
    "index": "BlackmanWindow HammingWindow HannWindow",
    "number*": "Einsum Max Min",
    "string": "RegexFullMatch StringNormalizer StringSplit",
    "wide i64 wide**": "ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam "
    "ai.onnx.preview.training.Momentum",
    "T=byte U=byte T U": "ConvInteger MatMulInteger",
    "T=byte f32 T T f32 T f32 T": "com.microsoft.QLinearAdd com.microsoft.QLinearMul",
    "T=float T T T i32 T": "GRU RNN",
    "T=float index T": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "T=float+long T": "MatMul PRelu",
    "T=real T T real T T": "LinearAttention com.microsoft.LinearAttention",
    "T=real i64 T T": "com.microsoft.MRotaryEmbedding com.microsoft.RotaryEmbedding",
    "bool": "If Not",
    "f32": "DynamicQuantizeLinear ai.onnx.ml.ZipMap",
    "f8+float": "IsInf IsNaN",
    "float float": "RMSNormalization SimplifiedLayerNormalization",
    "float*": "Mean Sum",
    "float+int": "Neg Relu",
    "float+long index": "CumProd CumSum",
    "float+long+byte+bool i64": "ReduceMax ReduceMin",
    "map": "ai.onnx.ml.CastMap ai.onnx.ml.DictVectorizer",
    "sequence": "ConcatFromSequence SequenceLength",
    "sequence index": "SequenceAt SequenceErase",
    "T=any i64 T index": "Pad",
    "T=byte U=byte V=f16+f32 V T U V": "com.microsoft.MatMulIntegerToFloat",
    "T=byte U=byte V=f16+f32 V V i32 T U V": "com.microsoft.QAttention",
    "T=byte f32 T U=byte f32 U f32 byte i32": "QLinearConv",
    "T=byte f32 T U=byte f32 U i32 f32 byte": "com.microsoft.QGemm",
    "T=byte+nibble+short+i32 f16+f32 T": "com.microsoft.DequantizeLinear",
    "T=f16+f32 T byte+nibble+short": "com.microsoft.QuantizeLinear",
    "T=f8+byte U=real T V=f8+byte U V U f8+byte": "QLinearMatMul",
    "T=f8+byte+crumb+nibble+short+f4+i32 real+f8_e8m0 T": "DequantizeLinear",
    "T=f8+nibble+f4+u8 index real T": "com.microsoft.GatherBlockQuantized",
    "T=float T T T T": "DeformConv",
    "T=float T T T i32 T T T": "LSTM",
    "T=float T U=float number+bool T U i64": "Attention",
    "T=float T i64": "RoiAlign",
    "T=float U=index T U": "STFT",
    "T=float+index+i16 T T": "Range",
    "T=float+long T T": "Gemm",
    "T=half T T U=byte+half+f8_e4m3 U i32 i32 i32 T T i32 T T T f32 f32 i32": "com.microsoft.PagedAttention",
    "T=ieee T T": "com.microsoft.NhwcConv",
    "T=ieee T T T": "com.microsoft.FusedConv",
    "T=index T T U=float U": "MelWeightMatrix",
    "T=integer+ieee+complex+bool+string index T": "Scatter",
    "T=long+ieee T T": "com.microsoft.FusedGemm",
    "T=number T T": "Clip",
    "T=number+bool+string T": "Equal",
    "T=real T T": "com.microsoft.GatedRMSNorm",
    "T=real T T T T": "com.microsoft.SkipLayerNormalization",
    "T=real T T T T T T T": "com.microsoft.MoE",
    "T=real T T T T i32 i32 i32 i32 T T": "com.microsoft.SparseAttention",
    "T=real T T T i32 T T T i32 i32": "com.microsoft.MultiHeadAttention",
    "T=real T T U=real+byte+f8_e4m3 U i32 i32 T T i64 T T f32 f32 T T i32": "com.microsoft.GroupQueryAttention",
    "T=real T T i32 T T i32": "com.microsoft.Attention",
    "T=real T T i64": "RotaryEmbedding",
    "T=real T U=f8_e4m3+u8 V=real+f8_e4m3+f8_e8m0 T U V T U V T U U U T f32 f32 f32 f32 V V": "com.microsoft.QMoE",
    "T=real f32 f32 T": "com.microsoft.LinearAttentionGate",
    "T=real u8 T": "com.microsoft.MatMulBnb4",
    "T=real u8 T real+u8 i32 T": "com.microsoft.MatMulNBits",
    "T=tensor i64 T": "ScatterND",
    "T=tensor index T": "ScatterElements",
    "T=tensor+f8+nibble+f4+f8_e8m0 T i64": "TensorScatter",
    "any**": "Scan",
    "any+sequence": "Optional",
    "bool T=byte f32 T T f32 T f32 T": "com.microsoft.QLinearWhere",
    "bool T=tensor T": "Where",
    "byte": "com.microsoft.NhwcMaxPool",
    "f32 T=byte T f32 i32 f32 f32 f32 f32 T f32 T": "com.microsoft.DynamicQuantizeLSTM",
    "f32 T=byte f32 T f32": "com.microsoft.DynamicQuantizeMatMul",
    "f32 byte byte+f32**": "com.microsoft.QLinearConcat",
    "f32 f32 i64 f32 f32": "NonMaxSuppression",
    "f8+float f8+float bool": "Dropout",
    "float T=float T U=float U": "BatchNormalization",
    "float i64 i64": "MaxUnpool",
    "float index i64": "DFT",
    "float+byte": "MaxPool",
    "float+index number": "Pow",
    "i32 i32 T=byte T T T T i32 f32 f32 f32 f32 f32 T T T T T": "com.microsoft.QEmbedLayerNormalization",
    "i32 i32 T=f16+f32 T T T T i32 i32": "com.microsoft.EmbedLayerNormalization",
    "i64": "ConstantOfShape",
    "i64 bool any+optional+sequence**": "Loop",
    "i64+string": "ai.onnx.ml.CategoryMapper",
    "ieee": "ai.onnx.ml.TreeEnsemble",
    "index+string": "TfIdfVectorizer",
    "index+wide*": "ai.onnx.ml.FeatureVectorizer",
    "index+wide+i16+string": "ai.onnx.ml.LabelEncoder",
    "index+wide+string": "ai.onnx.ml.OneHotEncoder",
    "index+wide+string i64": "ai.onnx.ml.ArrayFeatureExtractor",
    "integer": "BitwiseNot",
    "integer+ieee": "Shrink",
    "integer+ieee integer+ieee tensor": "OneHot",
    "integer+ieee+complex+bool+string f32": "Upsample",
    "integer+ieee+complex+bool+string*": "SequenceConstruct",
    "integer+ieee+complex+bool+string**": "ai.onnx.preview.training.Gradient",
    "number i64": "TopK",
    "number+bool": "EyeLike",
    "number+f8+complex+crumb+nibble+bool+f4+f8_e8m0": "BitCast",
    "number+f8+crumb+nibble+bool+f4+f8_e8m0+string": "Cast",
    "number+f8+crumb+nibble+bool+f4+f8_e8m0+string number+f8+crumb+nibble+bool+f4+f8_e8m0+string": "CastLike",
    "real+i32 real+f8_e8m0+i32 f8+byte+crumb+nibble+short+f4": "QuantizeLinear",
    "sequence integer+ieee+complex+bool+sequence+string**": "SequenceMap",
    "sequence integer+ieee+complex+bool+string index": "SequenceInsert",
    "string string": "StringConcat",
    "tensor T=index T T T": "Slice",
    "tensor bool": "Compress",
    "tensor float": "GridSample",
    "tensor i64 i64": "Col2Im",
    "tensor ieee f32 i64": "Resize",
    "tensor*": "Concat",
    "u8": "ImageDecoder",
}
"""From the types of the inputs, in order, to the operators that have them.

A type is a sum of sets, dtypes and the containers sequence, optional and map. ``T=float`` names it: all inputs that say
``T`` have one and the same type. ``*`` is any number of inputs of one type, ``**`` any number of inputs whose types may
differ.
"""

OUTPUTS = {
    2: "CausalConvWithState Dropout GRU LinearAttention MaxPool RNN SimplifiedLayerNormalization "
    "SoftmaxCrossEntropyLoss StringSplit TopK "
    "ai.onnx.ml.LinearClassifier ai.onnx.ml.SVMClassifier ai.onnx.ml.TreeEnsembleClassifier com.microsoft.Attention "
    "com.microsoft.LinearAttention com.microsoft.LinearAttentionGate com.microsoft.QAttention "
    "com.microsoft.QEmbedLayerNormalization",
    3: "BatchNormalization DynamicQuantizeLinear LSTM LayerNormalization com.microsoft.CausalConvWithState "
    "com.microsoft.DynamicQuantizeLSTM com.microsoft.EmbedLayerNormalization com.microsoft.PagedAttention "
    "com.microsoft.SparseAttention",
    4: "Attention Unique com.microsoft.GroupQueryAttention com.microsoft.MultiHeadAttention "
    "com.microsoft.SkipLayerNormalization "
    "com.microsoft.SkipSimplifiedLayerNormalization",
    1 << 31: "If Loop Scan SequenceMap Split ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam "
    "ai.onnx.preview.training.Gradient ai.onnx.preview.training.Momentum",
}
"""The most outputs of operators that may have more than one."""

OPERAND_TYPES = OperandTypes(SETS, INPUTS, OUTPUTS)
