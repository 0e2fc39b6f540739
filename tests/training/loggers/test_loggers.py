"""Logs are read by others: the csv module, and TensorBoard's reader where it is installed."""

import csv
import errno
import os
import struct
from pathlib import Path

import candle_convert as cc
import pytest
from candle_convert.training.loggers import CSVLogger, TensorBoardLogger
from candle_convert.training.loggers.tensorboard_logger import crc32c

ROWS = [({"loss": 0.5}, 0), ({"loss": 0.25, "accuracy": 0.75}, 300), ({"accuracy": 1.0}, 70000)]


def test_table(tmp_path):
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    for metrics, step in ROWS:
        logger.log_metrics(metrics, step)
    logger.finalize("success")
    with open(Path(logger.log_dir) / "metrics.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [(each["loss"], each["accuracy"], each["step"]) for each in found] == [
        ("0.5", "", "0"),
        ("0.25", "0.75", "300"),
        ("", "1.0", "70000"),
    ]


def test_versions(tmp_path):
    for number in range(2):
        logger = CSVLogger(tmp_path)
        logger.log_metrics({"loss": 1})
        logger.save()
        assert Path(logger.log_dir) == tmp_path / "lightning_logs" / f"version_{number}"
    named = TensorBoardLogger(tmp_path, "", "mine")
    named.log_hyperparams({"lr": 0.1})
    assert (tmp_path / "mine" / "hparams.yaml").read_text() == '{\n  "lr": 0.1\n}\n'
    (tmp_path / "file").write_text("")
    with pytest.raises(cc.FileAccessError, match="E-OUT-WRITE"):
        CSVLogger(tmp_path / "file").folder()


def test_a_full_disk_is_known(tmp_path, monkeypatch):
    def full(*arguments, **words):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    logger = CSVLogger(tmp_path)
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(cc.LimitError, match="E-OUT-FULL"):
        logger.folder()


def test_check_sums():
    """Of RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def event_file(folder):
    logger = TensorBoardLogger(folder)
    for metrics, step in ROWS:
        logger.log_metrics(metrics, step)
    logger.finalize("success")
    (path,) = Path(logger.log_dir).iterdir()
    return path


def test_events_by_the_definition_of_their_messages(tmp_path):
    """Read with protobuf, from descriptors of TensorFlow's messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")
    kinds = {"double": 1, "float": 2, "int64": 3, "string": 9, "message": 11}
    messages = {
        "Event": [("wall_time", 1, "double"), ("step", 2, "int64"), ("file_version", 3, "string"), ("summary", 5, "S")],
        "S": [("value", 1, "V*")],
        "V": [("tag", 1, "string"), ("simple_value", 2, "float")],
    }
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number, label=3 if kind.endswith("*") else 1)
            added.type = kinds.get(kind, kinds["message"])
            if kind not in kinds:
                added.type_name = f".t.{kind.rstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    event = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))
    data, found = event_file(tmp_path).read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert found[0].file_version == "brain.Event:2"
    assert [({v.tag: v.simple_value for v in each.summary.value}, each.step) for each in found[1:]] == ROWS


def test_events_by_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(event_file(tmp_path).parent))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("accuracy")] == [(300, 0.75), (70000, 1.0)]
    assert [(each.step, each.value) for each in found.Scalars("loss")] == [(0, 0.5), (300, 0.25)]
