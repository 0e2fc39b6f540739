"""Scanning pickles: names that run code in every encoding and every container are found; real checkpoints are clean."""

import collections
import io
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from candle_convert.formats.containers.pickle.cursor import Carrier
from candle_convert.formats.containers.pickle.machine import Machine
from candle_convert.formats.pytorch import FORMAT
from candle_convert.runtime.base.limits import Budget, Limits
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.builders.torch_files import (
    checkpoint,
    findings,
    old_tar,
    pickled,
    quantized,
    rebuilt,
    saved,
    state,
    tarred,
)

pytestmark = pytest.mark.filterwarnings("ignore")

EXECUTING = """
    os.system posix.system nt.system os.popen os.execv os.remove os.path.os.system subprocess.Popen subprocess.call
    subprocess.getoutput commands.getoutput _posixsubprocess.fork_exec shutil.rmtree shutil.copyfile pty.spawn
    platform.popen builtins.eval builtins.exec builtins.compile builtins.getattr builtins.setattr builtins.__import__
    builtins.open builtins.breakpoint builtins.input builtins.globals builtins.vars builtins.map builtins.type
    builtins.apply __builtin__.eval __builtin__.file __builtin__.apply importlib.import_module importlib.__import__
    imp.load_source pkgutil.resolve_name pydoc.locate pydoc.pipepager zipimport.zipimporter runpy.run_path
    runpy._run_code code.InteractiveInterpreter.runcode code.interact codeop.compile_command timeit.timeit timeit.main
    trace.Trace.run cProfile.run cProfile.runctx profile.run profile.Profile.runctx pdb.run pdb.Pdb.run bdb.Bdb.run
    doctest.debug_script doctest.testmod idlelib.run.Executive.runcode idlelib.pyshell.ModifiedInterpreter.runcommand
    idlelib.autocomplete.AutoComplete.get_entity idlelib.calltip.get_entity idlelib.debugobj.ObjectTreeItem.SetText
    lib2to3.pgen2.grammar.Grammar.loads lib2to3.pgen2.pgen.ParserGenerator.make_label ensurepip._run_pip pip.main
    pip._internal.main venv.create test.support.script_helper.assert_python_ok distutils.file_util.write_file
    asyncio.unix_events._UnixSubprocessTransport._start asyncio.subprocess.create_subprocess_shell
    concurrent.futures.ThreadPoolExecutor multiprocessing.util.spawnv_passfds threading.Thread signal.signal
    sched.scheduler operator.attrgetter operator.methodcaller operator.itemgetter _operator.attrgetter
    _operator.methodcaller functools.partial functools.reduce itertools.starmap types.FunctionType types.CodeType
    types.MethodType types.ModuleType copyreg.add_extension copyreg.pickle copyreg.__reduce_ex__ pickle.loads
    pickle.load _pickle.loads _pickle.Unpickler marshal.loads marshal.load shelve.open dbm.open ctypes.CDLL
    ctypes.string_at numpy.f2py.crackfortran.getlincoef numpy.f2py.diagnose.run_command
    numpy.testing._private.utils.runstring numpy.load numpy.fromfile numpy.memmap numpy.core.memmap
    numpy.ctypeslib.load_library torch.load torch.serialization.load torch.storage._load_from_bytes torch.hub.load
    torch.hub.load_state_dict_from_url torch.jit.load torch.jit.unsupported_tensor_ops.execWrapper
    torch.fx._symbolic_trace.symbolic_trace torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate
    torch.fx.graph_module._forward_from_src torch._dynamo.guards.GuardBuilder.get
    torch._inductor.codecache.compile_file torch.utils.collect_env.run torch.utils.bottleneck.__main__.run_cprofile
    torch.utils._config_module.ConfigModule.load_config torch.package.PackageImporter
    torch.utils.data.datapipes.utils.decoder.basichandlers torch.multiprocessing.spawn torch.distributed.rpc.rpc_sync
    torch.ops.load_library torch.classes.load_library torch.utils.cpp_extension.load torch.nn.modules.linear.Linear
    torch._utils._import_dotted_name webbrowser.open socket.socket socket.create_connection ssl.get_server_certificate
    requests.get requests.api.get httpx.get urllib.request.urlopen urllib.urlopen urllib2.urlopen urllib3.PoolManager
    httplib.HTTPSConnection http.client.HTTPSConnection aiohttp.ClientSession ftplib.FTP smtplib.SMTP poplib.POP3
    imaplib.IMAP4_stream telnetlib.Telnet xmlrpc.client.ServerProxy sys.exit sys.modules sys.settrace site.main
    logging.FileHandler logging.config.listen io.FileIO _io.FileIO io.open tempfile.mkstemp pathlib.Path.write_text
    fileinput.input linecache.getlines zipfile.ZipFile tarfile.open sqlite3.connect mmap.mmap gc.get_objects
    inspect.getattr_static uuid._get_command_stdout _osx_support._read_output _aix_support._read_cmd_output
    _pyrepl.pager.pipe_pager dill._dill._create_function dill.loads cloudpickle.cloudpickle._make_function
    cloudpickle.cloudpickle.subimport cloudpickle.loads joblib.load joblib.numpy_pickle.NDArrayWrapper
    jsonpickle.decode yaml.load yaml.unsafe_load pandas.read_pickle pandas.eval pandas.io.pickle.read_pickle
    sklearn.linear_model.LogisticRegression xgboost.core.Booster keras.models.load_model tensorflow.io.read_file
    transformers.AutoModel.from_pretrained setuptools.sandbox.run_setup ast.literal_eval string.Formatter.format
    unittest.mock._importer nltk.data.load builtins.unknown collections.namedtuple collections.OrderedDict.fromkeys
    collections.abc.Callable datetime.sys.exit pathlib.os.system argparse.ArgumentParser numpy.dtypes.sys
"""
CONFUSABLE = ("оs.system", "os​.system", "builtins.eｖal", "posix .system", "coIlections.OrderedDict", "__torch__.Net")
NAMES = [*EXECUTING.split(), *CONFUSABLE]


def with_global(module, name):
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + b"X\x02\0\0\0id\x85R."


def with_text(module, name):
    return f"c{module}\n{name}\n".encode() + b"(S'id'\ntR."


def with_instance(module, name):
    return b"(S'id'\n" + f"i{module}\n{name}\n.".encode()


def with_object(module, name):
    return b"(" + f"c{module}\n{name}\n".encode() + b"S'id'\no."


def with_stack(module, name):
    return b"\x80\x04" + short(module) + short(name) + b"\x93" + short("id") + b"\x85R."


def with_memo(module, name):
    """Both texts put into the memo, dropped, and fetched again in the other order."""
    return b"\x80\x04" + short(name) + b"\x940" + short(module) + b"\x940h\x01h\x00\x93" + short("id") + b"\x85R."


def with_new_object(module, name):
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + b"X\x02\0\0\0id\x85\x81}b."


def short(text):
    data = text.encode()
    return b"\x8c" + bytes([len(data)]) + data


ENCODINGS = [with_global, with_text, with_instance, with_object, with_stack, with_memo, with_new_object]


def dangers(path):
    return [finding for finding in findings(path) if finding.severity == "danger"]


def dangers_of(data, tmp_path, name="x.pkl"):
    path = tmp_path / name
    path.write_bytes(data)
    assert FORMAT.sniff(Source(path))
    return dangers(path)


@pytest.mark.parametrize("encode", ENCODINGS)
def test_every_name_in_every_encoding(encode, tmp_path):
    for name in NAMES:
        module, _, qualname = name.rpartition(".")
        found = dangers_of(encode(module, qualname), tmp_path)
        assert [finding.code for finding in found] == ["E-PKL-GLOBAL"], name
        assert found[0].offset is not None
        module, _, rest = name.partition(".")
        assert dangers_of(encode(module, rest), tmp_path), name


def zipped(members, method=zipfile.ZIP_STORED, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


BAD = with_global("posix", "system")
BAD_TEXT = with_text("posix", "system")
GOOD = pickled({"a": rebuilt()})
FLOATS = np.arange(4, dtype="<f4").tobytes()


def stream(whole, keys=None):
    return (
        pickled(0x1950A86A20F9469CFC6C)
        + pickled(1001)
        + pickled({})
        + whole
        + (keys or pickled(["0"]))
        + struct.pack("<q", 4)
        + FLOATS
    )


def torch_zip(**members):
    names = {"data_pkl": "data.pkl"}
    return zipped(
        {"a/data.pkl": GOOD, "a/data/0": FLOATS}
        | {f"a/{names.get(name, name)}": data for name, data in members.items()}
    )


def flag_changed(data, place, bits):
    """One flag of a central directory's first entry: what torch's reader and Python's take differently."""
    changed = bytearray(data)
    changed[changed.index(b"PK\1\2") + place] ^= bits
    return bytes(changed)


def crc_changed(data):
    changed = bytearray(data)
    for magic, place in ((b"PK\3\4", 14), (b"PK\1\2", 16)):
        changed[changed.index(magic) + place] ^= 1
    return bytes(changed)


def header_changed(data):
    """The local name differs from the directory's."""
    return data.replace(b"a/data.pkl", b"a/data.txt", 1)


SEVEN = b"7z\xbc\xaf\x27\x1c" + bytes(100)
CONTAINERS = [
    ("pickle", BAD),
    ("text-pickle", BAD_TEXT),
    ("after-a-pickle", GOOD.replace(b"Q", b"0N") + BAD),
    ("after-a-plain-pickle", pickle.dumps({"a": 1}) + BAD),
    ("third-pickle", pickle.dumps(1) + pickle.dumps([2]) + BAD),
    ("junk-after", pickle.dumps({"a": 1}) + b"junk" + BAD),
    ("no-stop", BAD[:-1]),
    ("before-a-broken-opcode", BAD[:-1] + b"\xff\xff"),
    ("before-an-empty-stack", BAD[:-1] + b"000."),
    ("text-before-a-broken-opcode", BAD_TEXT[:-1] + b"\xff"),
    ("popped", BAD[:-1] + b"0N."),
    ("in-a-dictionary", b"\x80\x02}X\x01\0\0\0a" + BAD[2:-1] + b"s."),
    ("as-a-key", b"\x80\x02}" + BAD[2:-1] + b"Ns."),
    ("as-state", b"\x80\x02ccollections\nOrderedDict\n)R" + BAD[2:-1] + b"b."),
    ("as-persistent-id", b"\x80\x02" + BAD[2:-1] + b"Q."),
    ("extension", b"\x80\x02\x82\x01)R."),
    ("import-alone", b"\x80\x02cposix\nsystem\n."),
    ("nested-pickle", b"\x80\x02cpickle\nloads\nX\x02\0\0\0id\x85R."),
    ("nested-torch-load", b"\x80\x03ctorch.storage\n_load_from_bytes\nC\x05" + BAD[:5] + b"\x85R."),
    (
        "object-array",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85c_codecs\nencode\n)tR"
        + BAD[2:-1]
        + b"b.",
    ),
    ("frozen-tuple-of-calls", b"\x80\x04(" + BAD[2:-1] * 3 + b"t."),
    ("stream", stream(BAD)),
    ("stream-keys", stream(GOOD, BAD)),
    ("stream-magic", BAD + stream(GOOD)),
    ("stream-trailing-pickle", stream(GOOD) + BAD),
    ("stream-trailing-bytes", stream(GOOD) + b"x"),
    ("stream-cut", stream(GOOD)[:-3]),
    ("tar-pickle", tarred(old_tar() | {"pickle": BAD})),
    ("tar-sys-info", tarred(old_tar() | {"sys_info": BAD})),
    ("tar-storages", tarred(old_tar() | {"storages": BAD})),
    ("tar-tensors", tarred(old_tar() | {"tensors": pickle.dumps(1, 2) + BAD})),
    ("tar-other", tarred(old_tar() | {"weights.bin": BAD})),
    ("zip-data", torch_zip(data_pkl=BAD)),
    ("zip-other-pickle", torch_zip(**{"extra.pkl": BAD})),
    ("zip-any-name", torch_zip(**{"readme.txt": BAD})),
    ("zip-any-name-text", torch_zip(**{"readme.txt": BAD_TEXT})),
    ("zip-hidden-folder", torch_zip(**{".data/x": BAD})),
    ("zip-constants", torch_zip(**{"constants.pkl": BAD})),
    ("zip-debug", torch_zip(**{"code/__torch__.py.debug_pkl": BAD})),
    ("zip-code-is-pickle", torch_zip(**{"code/__torch__.py": BAD_TEXT})),
    ("zip-storage-is-pickle", torch_zip(**{"data/0": BAD})),
    ("zip-storage-is-text-pickle", torch_zip(**{"data/0": BAD_TEXT})),
    ("zip-second-pickle", torch_zip(data_pkl=GOOD + BAD)),
    ("zip-broken-pickle", torch_zip(data_pkl=GOOD[:-5])),
    ("zip-deflated", zipped({"a/data.pkl": BAD}, zipfile.ZIP_DEFLATED)),
    ("zip-no-root", zipped({"data.pkl": BAD})),
    ("zip-of-pickles", zipped({"model/weights.pickle": BAD})),
    ("zip-encrypted", flag_changed(torch_zip(data_pkl=BAD), 8, 1)),
    ("zip-streamed-flag", flag_changed(torch_zip(data_pkl=BAD), 8, 8)),
    ("zip-method", flag_changed(torch_zip(data_pkl=BAD), 10, 1)),
    ("zip-crc", crc_changed(torch_zip(data_pkl=BAD))),
    ("zip-header-name", header_changed(torch_zip(data_pkl=BAD))),
    ("zip-cut", torch_zip(data_pkl=BAD)[:-30]),
    ("zip-appended", torch_zip() + BAD),
    ("zip-nested", torch_zip(**{"inner.zip": torch_zip(data_pkl=BAD)})),
    ("zip-nested-7z", torch_zip(**{"inner.bin": SEVEN})),
    ("zip-nested-gzip", torch_zip(**{"inner.bin": b"\x1f\x8b" + bytes(20)})),
    ("zip-nested-tar", torch_zip(**{"inner.bin": tarred(old_tar())})),
    ("zip-comment", torch_zip()[:-2] + struct.pack("<H", len(BAD)) + BAD + b"x"),
]


@pytest.mark.parametrize(("name", "data"), CONTAINERS, ids=[row[0] for row in CONTAINERS])
@pytest.mark.parametrize("suffix", [".pth", ".dat"])
def test_every_container(name, data, suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    found = dangers(path)
    assert found, name
    assert all(finding.message and finding.code.startswith("E-") for finding in found)


def test_all_names_are_told_with_their_places(tmp_path):
    names = [("posix", "system"), ("builtins", "eval"), ("mylib", "Model")]
    data = b"\x80\x02(" + b"".join(with_global(*name)[2:-1] for name in names) + b"t."
    found = dangers_of(data, tmp_path)
    assert [finding.offset for finding in found] == [data.index(f"c{module}\n".encode()) for module, _ in names]
    assert "can run code" in found[0].message
    assert "not in the table" in found[2].message


def test_members_are_named(tmp_path):
    (finding,) = dangers_of(torch_zip(**{"extra.bin": BAD}), tmp_path)
    assert (finding.member, finding.offset) == ("a/extra.bin", 2)


def test_allowed_names_are_no_finding_unless_they_run_code(tmp_path):
    path = tmp_path / "x.pkl"
    path.write_bytes(with_global("mylib", "Model"))
    assert list(FORMAT.scan(Source(path), ReadOptions())) != []
    assert list(FORMAT.scan(Source(path), ReadOptions(allow_globals=frozenset({"mylib.Model"})))) == []
    path.write_bytes(BAD)
    assert list(FORMAT.scan(Source(path), ReadOptions(allow_globals=frozenset({"posix.system", "*"})))) != []


def benign():
    """Everything that torch and Python write in good faith."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(module), out)
    yield "script", out.getvalue()
    for name, value in (
        ("state", state()),
        ("checkpoint", checkpoint()),
        ("quantized", quantized()),
        ("module", module.state_dict()),
    ):
        yield f"zip-{name}", saved(value)
        yield f"stream-{name}", saved(value, _use_new_zipfile_serialization=False)
    others = [1, "x", None, {1, 2}, b"\x80\x02", pathlib.PurePosixPath("/x"), collections.Counter("ab")]
    arrays = {"a": np.arange(5.0), "b": np.float32(1), "c": others}
    for protocol in range(6):
        yield f"pickle-{protocol}", pickle.dumps(arrays, protocol)
    yield "optimizer", saved({"o": torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).state_dict()})
    yield "tar", tarred(old_tar())
    yield "names-in-text", saved({"note": "posix\nsystem\n", "code": "cposix\nsystem\n(S'id'\ntR.", "w": torch.ones(2)})
    yield (
        "code-in-text",
        torch_zip(**{"code/net.py": b"class Net(Module):\n  x : int\n", "notes.txt": b"config\nfoo\nbar\n"}),
    )
    yield "proto-in-storage", torch_zip(**{"data/0": b"\x80\x02ab" + bytes(12)})


@pytest.mark.parametrize(("name", "data"), list(benign()), ids=lambda row: row if isinstance(row, str) else "")
def test_real_files_are_clean(name, data, tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(data)
    assert FORMAT.sniff(Source(path))
    assert [finding for finding in findings(path) if finding.severity != "info"] == []


OTHERS = [
    b"",
    b"\x80",
    b"{}",
    b"hello world",
    bytes(100),
    b"\x80\x02" + bytes(6) + b"{}",
    b"GGUF\3\0\0",
    b"\x93NUMPY",
    b"PK",
    b"V" + bytes(7),
]


@pytest.mark.parametrize("data", OTHERS)
def test_other_files_are_not_taken_for_pickles(data, tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    assert not FORMAT.sniff(Source(path))


def test_the_machine_never_resolves_a_name():
    """Names that would break the test process if they were imported or called."""
    for encode in ENCODINGS:
        data = encode("os", "abort")
        Machine(Carrier(Held(data), "x", Budget("x", Limits()))).run()
