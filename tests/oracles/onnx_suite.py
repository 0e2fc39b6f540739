"""Cases of the ONNX standard's own test suite: models, inputs and expected outputs."""

import os
import re
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
RANDOM = re.compile(r"test_bernoulli(_double|_seed)?(_expanded(_ver\d+)?)?$")


def collected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for kind in KINDS for case in load_model_tests(kind=kind)]


CASES = collected()


def normalized(value):
    if isinstance(value, list | tuple):
        return [normalized(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value


def loaded(case):
    """The model and (inputs, outputs) of each data set."""
    if case.model is not None:
        return case.model, [
            ([normalized(item) for item in inputs], [normalized(item) for item in outputs])
            for inputs, outputs in case.data_sets
        ]
    if case.url is not None:
        return light(Path(onnx.__file__).parent / case.url.removeprefix("onnx/"), case.model_name)
    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    sets = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set*")):
        inputs, outputs = [], []
        for stem, found, infos in (("input", inputs, model.graph.input), ("output", outputs, model.graph.output)):
            for index in range(len(list(folder.glob(f"{stem}_*.pb")))):
                Runner._load_proto(None, str(folder / f"{stem}_{index}.pb"), found, infos[index].type)
        sets.append((inputs, outputs))
    return model, sets


def light(path, name):
    """A model whose weights are constants, on the suite's own dummy input, with the output that stands beside it."""
    model = onnx.load(path)
    weights = {item.name for item in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(item, seed=0, name=name, random=False)
        for item in model.graph.input
        if item.name not in weights
    ]
    outputs = [
        numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_{index}.pb")))
        for index in range(len(model.graph.output))
    ]
    return model, [(inputs, outputs)]
