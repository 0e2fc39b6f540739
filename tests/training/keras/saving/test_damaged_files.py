"""Files of Keras that make no sense or ask for too much memory, and models that a file cannot describe."""

import io
import json
import random
import zipfile

import h5py
import numpy as np
import pytest
from candle_convert import Error, FormatError, LimitError, UnsafeFileError, UnsupportedError, UsageError, nn
from candle_convert import keras as ours
from candle_convert.tests.builders.sampling import every


def changed(path, change):
    """An archive of a model of one Dense, with another description."""
    ours.Sequential([ours.Input((4,)), ours.layers.Dense(3)]).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(members["config.json"])
    change(description["config"]["layers"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, "config.json": json.dumps(description)}.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("units", ["abc", -3, [1], {}, None])
def test_settings_that_make_no_sense(units, tmp_path):
    path = changed(tmp_path / "a.keras", lambda layers: layers[1]["config"].update(units=units))
    with pytest.raises(FormatError, match="the settings of its layers make no sense") as caught:
        ours.models.load_model(path)
    assert caught.value.code == "E-KERAS-CONFIG"


def test_missing_settings(tmp_path):
    path = changed(tmp_path / "a.keras", lambda layers: layers[1]["config"].pop("units"))
    with pytest.raises(FormatError, match="'units'"):
        ours.models.load_model(path)


def test_layers_nested_too_deeply():
    entry = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}}
    for number in range(1100):
        entry = {"class_name": "Sequential", "config": {"name": f"s{number}", "layers": [entry]}}
    with pytest.raises(FormatError, match="recursion"):
        ours.Sequential.from_config(entry["config"])


def test_weights_that_the_file_does_not_hold(tmp_path):
    """They are refused before they are made: twelve bytes of text do not cost gigabytes."""
    path = changed(tmp_path / "a.keras", lambda layers: layers[1]["config"].update(units=4_000_000_000_000))
    with pytest.raises(LimitError, match="the file does not hold so many elements"):
        ours.models.load_model(path)


def test_arrays_that_the_file_does_not_store(tmp_path):
    """An HDF5 file can declare an array of any length without a byte of it."""
    model = ours.Sequential([ours.Input((4000,)), ours.layers.Dense(1000, use_bias=False)])
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        file.create_group("layers/dense/vars").create_dataset("0", (4000, 1000), np.float32)
    with pytest.raises(LimitError, match="of which the file stores 0"):
        model.load_weights(tmp_path / "a.weights.h5")


def test_modules_of_pytorch_are_not_described(tmp_path):
    model = ours.Sequential([ours.Input((4,)), nn.Linear(4, 3)])
    with pytest.raises(UnsupportedError, match="has a Linear of PyTorch's kind"):
        model.save(tmp_path / "a.keras")


def test_arguments_of_save_model(tmp_path):
    model = ours.Sequential([ours.Input((4,)), ours.layers.Dense(3)])
    ours.models.save_model(model, tmp_path / "a.keras", overwrite=True)
    with pytest.raises(UnsafeFileError, match="the file exists"):
        ours.models.save_model(model, tmp_path / "a.keras", overwrite=False)
    with pytest.raises(UsageError, match="written as"):
        ours.models.save_model(model, tmp_path / "a.h5")


def file_of_weights():
    """The bytes of an older .h5 of Keras: datasets, and attributes of text in a global heap."""
    layers = [ours.Input((4,)), ours.layers.Dense(3, name="dense")]
    config = {"class_name": "Sequential", "config": ours.Sequential(layers).get_config()}
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array(["dense"], h5py.string_dtype())
        dense = group.create_group("dense")
        dense.attrs["weight_names"] = np.array(["kernel", "bias"], h5py.string_dtype())
        dense.create_dataset("kernel", data=np.ones((4, 3), np.float32))
        dense.create_dataset("bias", data=np.zeros(3, np.float32))
    return held.getvalue()


def changed_bytes(whole, seed):
    draw, data = random.Random(seed), bytearray(whole)
    for _ in range(draw.choice((1, 2, 8))):
        data[draw.randrange(len(data))] = draw.choice((0, 1, 127, 128, 255))
    return data[: draw.randrange(len(data))] if seed % 10 == 0 else data


@pytest.mark.parametrize("seed", [136, *every(10, range(136))])
def test_bytes_that_have_changed(seed, tmp_path):
    """Whatever the HDF5 library raises, or does instead, is one error of ours: with seed 136 it crashes."""
    (tmp_path / "a.h5").write_bytes(changed_bytes(file_of_weights(), seed))
    try:
        ours.models.load_model(tmp_path / "a.h5")
    except Error as error:
        assert "\n" not in str(error)


def test_a_heap_through_which_the_library_loops(tmp_path):
    """An object that takes no room; HDF5 2.0 does not come to an end."""
    data = bytearray(file_of_weights())
    at = data.index(b"GCOL") + 16
    data[at : at + 16] = bytes(16)
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(FormatError, match="does not read it to its end"):
        ours.models.load_model(tmp_path / "a.h5")
