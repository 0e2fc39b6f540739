"""Scan of Keras configurations for layers that hold code or name code to import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.containers.torch.allowed_names import executing
from ...runtime.contract.format import Finding

CODE_CLASSES = {
    "Lambda": "a Lambda layer, which holds Python code",
    "__lambda__": "Python bytecode",
    "TorchModuleWrapper": "a module of torch, which is a pickle",
}
"""Classes of Keras that run what the file holds."""
OPERATOR_CLASSES = ("TFOpLambda", "SlicingOpLambda")
"""Layers that call a function of TensorFlow by its name."""
TENSORFLOW_DANGERS = (
    "io.",
    "py_function",
    "numpy_function",
    "py_func",
    "load_",
    "raw_ops.",
    "debugging.",
    "data.",
    "compat.",
    "saved_model.",
    "train.",
)
"""Functions of TensorFlow that reach files, libraries or Python, or parts of it that hold such."""
OWN = ("keras", "tf_keras", "tensorflow", "keras_core", "keras_cv", "keras_hub", "keras_nlp", "keras_tuner", "builtins")
"""Packages whose classes Keras means by their module; of `builtins` only functions that it has itself, and the
containers below."""
BUILTINS = (
    "function",
    "tuple",
    "list",
    "dict",
    "set",
    "frozenset",
    "slice",
    "float",
    "int",
    "str",
    "bool",
    "bytes",
    "NoneType",
    "complex",
    "range",
)


def code_in(item: dict[str, Any], member: str | None) -> Iterator[Finding]:
    """The code that an object of a configuration makes Keras run or import, if it names a class."""
    kind, module, registered = (item.get(key) for key in ("class_name", "module", "registered_name"))
    if not isinstance(kind, str) or not ("config" in item or module is not None or registered is not None):
        return
    short = kind.rpartition(">")[2].rpartition(".")[2]
    name = registered.rpartition(">")[2] if isinstance(registered, str) else ""
    known = CODE_CLASSES.get(short) or CODE_CLASSES.get(name)
    if known is not None:
        yield Finding("E-SCAN-KERAS", "danger", f"the Keras configuration has {known}", member=member)
    config = item.get("config")
    called = str(config.get("function", "")) if isinstance(config, dict) else ""
    if short in OPERATOR_CLASSES and any(part in called for part in TENSORFLOW_DANGERS):
        yield Finding("E-SCAN-KERAS", "danger", f"the Keras configuration calls TensorFlow's {called!r}", member=member)
    if not isinstance(module, str):
        return
    package = module.partition(".")[0]
    target = f"{module}.{config}" if kind == "function" and isinstance(config, str) else f"{module}.{kind}"
    if package not in OWN or (package == "builtins" and kind not in BUILTINS and not kind.startswith("__")):
        severity, why = (
            ("danger", "which can run code")
            if executing(target) or package == "builtins"
            else ("warning", "which is not Keras's own")
        )
        code = "E-SCAN-KERAS" if severity == "danger" else "W-SCAN-KERAS"
        yield Finding(code, severity, f"the Keras configuration asks Python to import `{target}`, {why}", member=member)
