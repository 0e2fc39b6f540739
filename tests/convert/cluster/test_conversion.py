"""Conversions on two worker processes: the bytes of one process, or no output."""

import json
import os

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.cluster.workers import cluster as clusters
from candle_convert.convert.write import write
from candle_convert.convert.write.plan import plan
from candle_convert.tests.builders import imatrix_files


@pytest.fixture(scope="module")
def cluster():
    with cc.cluster("local:2") as workers:
        yield workers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Shards of float weights, of which some overflow f16."""
    random = np.random.default_rng(0)
    arrays = {f"blk.{number}.ffn_up.weight": random.standard_normal((512, 512), np.float32) for number in range(12)}
    arrays["blk.3.ffn_up.weight"][0, 0] = 1e6
    folder = tmp_path_factory.mktemp("model")
    cc.save_file(arrays, folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Pieces of one tensor, so that both workers get several."""
    from candle_convert.convert.cluster import conversion

    monkeypatch.setattr(conversion, "SPLIT", 2**20)


@pytest.mark.parametrize("type_name", ["W4A16", "GPTQ-INT4", "NVFP4A16"])
def test_weights_of_several_tensors(cluster, tmp_path, type_name):
    random = np.random.default_rng(0)
    arrays = {f"layers.{number}.up.weight": random.standard_normal((512, 512), np.float32) for number in range(6)}
    cc.save_file(arrays, tmp_path / "model.safetensors")
    alone, shared = (tmp_path / name for name in ("alone", "shared"))
    cc.quantize(tmp_path / "model.safetensors", alone, type_name)
    cc.quantize(tmp_path / "model.safetensors", shared, type_name, cluster=cluster)
    assert (alone / "model.safetensors").read_bytes() == (shared / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["out.safetensors", "out.npz", "out.pth"])
def test_cast(model, cluster, tmp_path, name):
    """A cast to f16 counts on workers what it counts in one process."""
    alone = cc.convert(model, tmp_path / "alone" / name, dtype="f16")
    shared = cc.convert(model, tmp_path / "shared" / name, dtype="f16", cluster=cluster)
    assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "shared" / name).read_bytes()
    assert shared.verified == 12
    assert shared.overflows == alone.overflows == 1
    assert shared.notes == alone.notes


def test_quantize(model, cluster, tmp_path):
    """Blocks, their measured errors, and shards, with a client of Dask handed in."""
    arguments = {"recipe": cc.Recipe("Q4_K", pure=True), "measure": True, "shard_tensors": 5}
    alone = cc.quantize(model, tmp_path / "alone.gguf", **arguments)
    shared = cc.quantize(model, tmp_path / "shared.gguf", **arguments, cluster=cc.cluster(cluster.client))
    assert shared.types == alone.types
    for number in (1, 2, 3):
        one, two = (tmp_path / f"{name}-0000{number}-of-00003.gguf" for name in ("alone", "shared"))
        assert one.read_bytes() == two.read_bytes()


def test_command(model, cluster, tmp_path, capsys):
    """The option takes the address of a scheduler; the plan has the workers, and a dry run writes nothing."""
    words = ["convert", str(model), str(tmp_path / "out.gguf"), "--quantize", "Q8_0", "--cluster"]
    assert run([*words, "local:3", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "cluster  3 workers" in shown
    assert "written and" in shown
    assert not (tmp_path / "out.gguf").exists()
    assert run([*words, cluster.client.scheduler.address]) == 0
    assert "dashboard http://" in capsys.readouterr().err
    cc.quantize(model, tmp_path / "alone.gguf", "Q8_0")
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "out.gguf").read_bytes()


def test_error_of_a_worker(tmp_path, cluster):
    """What the work raises is raised here, and there is no output."""
    array = np.ones((64, 64), np.float32)
    array[5, 3] = np.nan
    cc.save_file({"a.weight": array}, tmp_path / "nan.safetensors")
    with pytest.raises(cc.FormatError, match=r"E-NAN.*'a.weight' holds NaN at element 323"):
        cc.convert(tmp_path / "nan.safetensors", tmp_path / "out.safetensors", dtype="f16", cluster=cluster)
    assert os.listdir(tmp_path) == ["nan.safetensors"]


def test_resume(model, cluster, tmp_path):
    """Workers do what a run that ended after half of its jobs left, and the bytes are those of one run."""
    out = tmp_path / "out.safetensors"
    made = plan([model], out, cc.Options(dtype="f16", verify="none"))
    jobs = [job for job in write.jobs_of(made.files) if not isinstance(job.piece.data, bytes)]

    class Ends:
        """Writes four jobs, then the process ends."""

        def write(self, jobs):
            yield from cluster.crew(made, [model], out, made.options).write(jobs[:4])
            raise KeyboardInterrupt

    from candle_convert.convert.write import pipeline

    with pytest.raises(KeyboardInterrupt):
        pipeline.execute(made, crew=Ends())
    partial = tmp_path / "out.safetensors.partial"
    assert partial.exists()
    report = cc.convert(model, out, dtype="f16", resume=True, cluster=cluster)
    cc.convert(model, tmp_path / "alone.safetensors", dtype="f16")
    assert report.kept == made.files[0].nbytes - sum(job.stop - job.start for job in jobs[4:])
    assert report.overflows == 1
    assert out.read_bytes() == (tmp_path / "alone.safetensors").read_bytes()


def test_other_version(model, cluster, tmp_path, monkeypatch):
    """Workers of another version are refused with both."""
    monkeypatch.setattr(clusters, "version", lambda: "9.9.9+00000000")
    with pytest.raises(cc.UnsupportedError, match=r"E-CLUSTER-VERSION.*runs candle-convert 0\..*, the client runs 9"):
        cc.convert(model, tmp_path / "out.safetensors", cluster=cluster)
    assert not os.listdir(tmp_path)


def test_other_files(model, cluster, tmp_path):
    """A worker that reads other files under the same path than the client is refused, and leaves no output."""
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(model.read_bytes())
    out = tmp_path / "out.safetensors"
    made = plan([copy], out, cc.Options(dtype="f16"))
    from candle_convert.convert.write import pipeline

    os.utime(copy, ns=(1, 1))
    with pytest.raises(cc.FileAccessError, match=r"E-CLUSTER-PLAN.*sizes or times of the input files differ"):
        pipeline.execute(made, crew=cluster.crew(made, [copy], out, made.options))
    assert not out.exists()
    os.utime(copy, ns=(1, 1))
    made = plan([copy], out, cc.Options(dtype="f16"))
    described = cc.Options(dtype="bf16")
    with pytest.raises(cc.FileAccessError, match=r"E-CLUSTER-PLAN.*: options and names, shapes and small values"):
        pipeline.execute(made, crew=cluster.crew(made, [copy], out, described))
    assert not out.exists()


def test_relative_importance(model, cluster, tmp_path, monkeypatch):
    """An importance matrix by a path that is relative to the folder of the client, not of the workers."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(1).uniform(1, 9, 512).astype(np.float32)
    (tmp_path / "importance.dat").write_bytes(imatrix_files.old_bytes(dict.fromkeys(cc.open(model), (1, values))))
    for name, where in (("alone", None), ("shared", cluster)):
        cc.quantize(model, tmp_path / f"{name}.gguf", "Q4_K", imatrix="importance.dat", cluster=where)
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "shared.gguf").read_bytes()


@pytest.mark.parametrize(
    ("where", "error", "code"),
    [("local:0", cc.UsageError, "E-OPTION"), ("somewhere", cc.UsageError, "E-OPTION"), (7, cc.UsageError, "E-OPTION")],
)
def test_addresses(where, error, code):
    with pytest.raises(error, match=code):
        cc.cluster(where)


@pytest.mark.parametrize("call", [cc.convert, cc.quantize])
def test_what_is_no_handle(model, tmp_path, call):
    with pytest.raises(cc.UsageError, match=r"E-OPTION.*'local:2' is not a cluster") as error:
        call(model, tmp_path / "out.gguf", cluster="local:2")
    assert error.value.hint == "Pass what cluster() returns"


def test_no_certificates():
    """An address that needs certificates, without Dask's settings for them: one line at once."""
    with pytest.raises(cc.FileAccessError, match=r"E-CLUSTER-CONNECT.*tls://127\.0\.0\.1:1.*certificates"):
        _ = cc.cluster("tls://127.0.0.1:1").client


def test_no_scheduler(model, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 0.5)
    with pytest.raises(cc.FileAccessError, match=r"E-CLUSTER-CONNECT.*answers at tcp://127\.0\.0\.1:1"):
        cc.convert(model, tmp_path / "out.safetensors", cluster=cc.cluster("tcp://127.0.0.1:1"))


def test_json(model, cluster, tmp_path, capsys):
    """JSON mode prints one object."""
    words = ["convert", str(model), str(tmp_path / "out.npz"), "--json", "--cluster", cluster.client.scheduler.address]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["verified"] == 12
