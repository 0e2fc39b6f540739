"""Archives of Keras: .keras with the description and the weights of a model; the older .h5 is read, too."""

from __future__ import annotations

import datetime
import io
import json
import os
import zipfile
from typing import Any

from ....formats.containers.zip.archive import Archive
from ....runtime.base.errors import FileAccessError, FormatError, UnsafeFileError, UsageError
from ....runtime.base.untrusted.json import parse
from ....runtime.tensor.file import Source
from ..core.initializers import limited
from . import hdf5
from .description import layer_entry
from .reading import model_of
from .weights_file import read_weights, save_weights

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
VERSION = "3.0.0"
"""The oldest Keras that reads these archives."""
MAX_CONFIG = 64 << 20
SPARE_ELEMENTS = 1 << 20
"""Elements of weights that a model may have although the file does not hold them."""


def save_model(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True, zipped: bool = True) -> None:
    """Write a model to a .keras archive, which Keras opens.

    Args:
        overwrite: whether a file that exists is replaced.
        zipped: Keras' choice of an archive instead of a folder.

    Raises UsageError for another suffix, UnsafeFileError for a file that exists, UnsupportedError for layers that a
    file cannot describe.
    """
    path = os.fspath(filepath)
    if not zipped or not path.lower().endswith(".keras"):
        why = "models are written as .keras archives"
        raise UsageError("E-OUT-FORMAT", path, why, hint="Name the file .keras, or write its weights: save_weights")
    if not overwrite and os.path.exists(path):
        raise UnsafeFileError("E-OUT-EXISTS", path, "the file exists", hint="Pass overwrite=True to replace it")
    description = {**layer_entry(model), "build_config": {}}
    weights = io.BytesIO()
    save_weights(model, weights)
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    members: dict[str, str | bytes] = {
        METADATA: json.dumps({"keras_version": VERSION, "date_saved": now}),
        CONFIG: json.dumps(description),
        WEIGHTS: weights.getvalue(),
    }
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    except OSError as error:
        raise FileAccessError("E-OUT-WRITE", path, f"cannot be written: {error.strerror or error}") from error


def load_model(
    filepath: str | os.PathLike[str], custom_objects: Any = None, compile: bool = True, safe_mode: bool = True
) -> Any:
    """The model of a .keras archive or an older .h5. It is not compiled, and no code of the file is executed.

    Args:
        custom_objects: classes of layers by the names that the file has for them.
        compile, safe_mode: Keras' choices, without effect.

    Raises FormatError for other files, UnsupportedError for layers that there are not, UnsafeFileError for code.
    """
    path = os.fspath(filepath)
    source = Source(path)
    try:
        if source.read(0, 4) != b"PK\x03\x04":
            return _older_model(path, source, custom_objects)
        archive = Archive(source)
        config = _member(archive, CONFIG, MAX_CONFIG, path)
        weights = _member(archive, WEIGHTS, None, path)
        description = parse(config, source, 0, "E-KERAS-CONFIG", constants=True)
    finally:
        source.close()
    with hdf5.opened(weights, path) as file:
        return _with_weights(description, file, custom_objects)


def _with_weights(description: Any, file: Any, custom_objects: Any) -> Any:
    """The model of a description, whose weights may not have more elements than those in the file."""
    with limited(SPARE_ELEMENTS + 2 * hdf5.elements(file)):
        model = model_of(description, custom_objects)
    read_weights(model, file)
    return model


def load_weights(model: Any, path: str | os.PathLike[str], by_name: bool = False) -> None:
    """Take the weights of a .keras archive, a .weights.h5 or an older .h5."""
    source = Source(path)
    try:
        data: Any = source.path
        if source.read(0, 4) == b"PK\x03\x04":
            data = _member(Archive(source), WEIGHTS, None, source.path)
    finally:
        source.close()
    with hdf5.opened(data, os.fspath(path)) as file:
        read_weights(model, file, by_name)


def _member(archive: Archive, name: str, limit: int | None, path: str) -> bytes:
    if name not in archive.members:
        raise FormatError("E-KERAS-MEMBER", path, f"the archive does not have {name}", hint="Save the model as .keras")
    return archive.read(archive.members[name], limit)


def _older_model(path: str, source: Source, custom_objects: Any) -> Any:
    with hdf5.opened(path, path) as file:
        config = file.attrs.get("model_config")
        if config is None:
            why = "the file has weights and no model"
            raise FormatError("E-KERAS-CONFIG", path, why, hint="Build the model, then call load_weights")
        data = config if isinstance(config, bytes) else str(config).encode()
        return _with_weights(parse(data, source, 0, "E-KERAS-CONFIG", constants=True), file, custom_objects)
