"""Fixtures that all tests share."""

import gc
import os
import random
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from candle_convert.runtime.base.huge_pages import allocate
from candle_convert.runtime.cuda.device.device import cuda_support
from candle_convert.runtime.execute import compile_ahead, workspace
from candle_convert.runtime.execute.run_options import RunOptions
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.execute.workspace import Workspace
from candle_convert.runtime.jit import numba_lazy
from candle_convert.tests.builders import packaged_models, sampling
from candle_convert.tests.fuzz.sandbox import Sandbox
from candle_convert.tests.plugins import forked_workers
from hypothesis import HealthCheck, settings


def pytest_configure(config: pytest.Config) -> None:
    """Drawn examples are the same in every run, however fast the machine is, and others in each exhaustive sweep.
    SIGINT interrupts, also where the shell started this process in the background, which ignores it. Each worker
    compiles kernels itself, and keeps for the next what it compiled for one."""
    os.environ[sampling.VARIABLE] = str(sampling.turn())  # for processes that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile(
        "candle", deadline=None, database=None, derandomize=not _full(config), suppress_health_check=slow
    )
    settings.load_profile("candle")
    gc.set_threshold(50_000, 4, 4)
    if forked_workers.workers(config) or hasattr(config, "workerinput"):
        compile_ahead.cores = lambda: 1
        numba_lazy.numba()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Workers are forked when all functions are declared to Numba. CUDA, which does not work in a fork of a process
    that has initialized it, is initialized by tests alone."""
    if forked_workers.workers(session.config):
        numba_lazy.numba()
        assert not cuda_support.cache_info().currsize, "a module of tests looks for CUDA devices when it is imported"
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting tests makes millions of objects that stay: Python does not look for garbage among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unless sweeps are exhaustive, a test that is marked ``sampled(n)`` runs with every n-th of its parameters, others
    after each commit. One that the command line names runs."""
    if _full(config) or any("[" in argument.partition("::")[2] for argument in config.args):
        return
    seen, left_out = Counter[str](), []
    for item in items:
        mark, name = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        if mark is not None:
            if (seen[name] - sampling.turn()) % mark.args[0]:
                left_out.append(item)
            seen[name] += 1
    if left_out:
        skipped = set(left_out)
        items[:] = [item for item in items if item not in skipped]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [] if _full(config) else [f"sampled parameters: {sampling.VARIABLE}={sampling.turn()}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Repeat what chose the sampled parameters: -q leaves out the header."""
    if exitstatus and terminalreporter.verbosity < 0 and not _full(config):
        terminalreporter.write_line(*pytest_report_header(config))


def _full(config: pytest.Config) -> bool:
    return sampling.full() or "slow" in config.getoption("-m").replace("not slow", "")


@pytest.fixture(autouse=True)
def repeated() -> None:
    """What a test draws without a generator of its own does not depend on the tests before it, nor on whether they
    imported PyTorch or our tensors: 67280421310721 is the seed with which both start."""
    random.seed(1)
    torch, ours = sys.modules.get("torch"), sys.modules.get("candle_convert.tensors.operations.random")
    if torch is not None:
        torch.default_generator.manual_seed(67280421310721)  # torch.manual_seed takes 1 ms, for devices of no test
    if ours is not None:
        ours.manual_seed(67280421310721)


@pytest.fixture(scope="session", autouse=True)
def needed_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs of other shapes that may follow are planned in one test of sixteen, by its name, and their kernels are not
    compiled beforehand, unless sweeps are exhaustive: few tests have such runs, and kernels that cannot be compiled are
    no error before. Processes that tests start compile them."""

    def compile_later(warmup: ShapeWarmup, feeds: Sequence[Any], run: RunOptions, missing: bool) -> None:
        name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if not (zlib.crc32(name.encode(errors="surrogateescape")) - sampling.turn()) % 16 and run.taps is None:
            warmup.expected_kernels(warmup.expected_feeds(feeds), feeds, run)

    with pytest.MonkeyPatch.context() as patch:
        if not _full(request.config):
            patch.setattr(ShapeWarmup, "compile_later", compile_later)
            patch.setattr(ShapeWarmup, "imminent_kernels", lambda warmup, feeds, run: [])
        yield


@pytest.fixture(scope="session", autouse=True)
def uninitialized_memory() -> Iterator[None]:
    """Memory that a plan is given holds NaN, as integers -1: a kernel that reads what none wrote fails in each run, not
    only where something was left there."""

    def filled(nbytes: int) -> np.ndarray:
        array = allocate(nbytes)
        array.fill(0xFF)
        return array

    def new_output(memory: Workspace, slot: int) -> None:
        dtype, shape = memory.plan.slots[slot]
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8).fill(0xFF)
        memory.put(slot, array)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "allocate", filled)
        patch.setattr(Workspace, "new_output", new_output)
        yield


@pytest.fixture
def no_card() -> None:
    """Skips a test where CUDA devices are, or are simulated."""
    if cuda_support().why is None:
        pytest.skip("there is a card, or the simulator")


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """`gc.get_objects` gives what was made while tests were collected, too."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="module")
def frozen() -> None:
    """Models that drop their parts look for garbage each time: not among the objects of earlier tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A memory-limited process that opens hostile files."""
    made = Sandbox()
    yield made
    made.close()


@pytest.fixture(scope="session")
def gemma3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of Gemma 3 270M in Q4_K_M, kept in pytest's cache."""
    cache = getattr(request.config, "cache", None)
    return packaged_models.gemma3(cache.mkdir("trained_models") if cache else tmp_path_factory.mktemp("trained_models"))


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The Hugging Face directory of all-MiniLM-L6-v2: BERT, f32 safetensors."""
    return packaged_models.minilm()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether sweeps are exhaustive: with ``-m slow``, or CANDLE_FULL=1 in the environment."""
    return _full(request.config)


@pytest.fixture
def seed(full: bool) -> int:
    """The seed of random tests, shown when one fails: CANDLE_SEED, always the same otherwise, a new one in exhaustive
    sweeps."""
    chosen = int(os.environ.get("CANDLE_SEED", int.from_bytes(os.urandom(4), "little") if full else 1))
    print(f"CANDLE_SEED={chosen}")
    return chosen
