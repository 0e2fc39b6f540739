"""System report: versions, cores, memory, disks, caches, and advice. Imports none of the packages it reports."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.jit import isa

DISTRIBUTION = "candle-convert"
CUDA = "cuda"
"""The extra whose packages only a machine with a card needs."""
FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "sve",
)
OPTIONAL = {"jinja2": "is not installed; without it, scan only searches chat templates for patterns"}
VARIABLES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "NUMBA_CACHE_DIR",
    "NUMBA_DISABLE_JIT",
    "NUMBA_ENABLE_CUDASIM",
    "NO_COLOR",
    "TMPDIR",
)
DRIVER = Path("/proc/driver/nvidia")
SCARCE = 2**30
"""Bytes of memory or disk below which a warning is due."""
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]*\])?\s*(?P<condition>[<>=!~][^;]*)?(?:;\s*extra\s*==\s*['\"](?P<extra>\w+)['\"])?"
)


@dataclass(frozen=True)
class Verdict:
    """One line of advice: ok, warning or problem, and what to do."""

    status: str
    subject: str
    message: str


def packages() -> list[dict[str, Any]]:
    """The packages that we require or can use: name, installed version (None), the version needed, and the extra that
    asks for it."""
    rows = []
    for requirement in _requirements():
        match = _REQUIREMENT.match(requirement)
        if match is None or match["extra"] == "test":
            continue
        rows.append(
            {
                "name": match["name"],
                "version": _version(match["name"]),
                "needs": (match["condition"] or "").strip(),
                "extra": match["extra"],
            }
        )
    known = {row["name"] for row in rows}
    return rows + [
        {"name": name, "version": _version(name), "needs": "", "extra": "scan"}
        for name in OPTIONAL
        if name not in known
    ]


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def too_old(version: str, condition: str) -> bool:
    """Whether a version is below a ``>=`` condition."""
    wanted = re.search(r">=\s*([\d.]+)", condition)
    return wanted is not None and _numbers(version) < _numbers(wanted[1])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def hardware() -> dict[str, Any]:
    """Cores that this process may use, memory in bytes, CPU name and features, whether an NVIDIA driver is loaded."""
    text = _read("/proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    present = flags[1].split() if flags else []
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return {
        "cpu": name[1] if name else platform.processor() or platform.machine(),
        "features": [feature for feature in FEATURES if feature in present],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory": _memory(),
        "cuda_driver": (DRIVER / "version").exists(),
        "cuda": _cuda(),
    }


def kernels() -> dict[str, Any]:
    """The level of instructions that kernels are made of, those that this machine has, and what each kind of kernel
    does with it."""
    return {
        "level": isa.level().name,
        "offered": [level.name for level in isa.available_levels()],
        "forced": bool(os.environ.get(isa.VARIABLE)),
        "paths": {path.kernels: path.selected() for path in isa.PATHS},
    }


def _cuda() -> dict[str, Any]:
    """The driver's version, the names of its cards, versions of numba-cuda and cuDNN, and whether the simulator stands
    for a card."""
    from ...runtime.cuda.matmul import cudnn

    driver = re.search(r"(\d+\.\d[\d.]*)", _read(str(DRIVER / "version")))
    texts = [_read(str(path)) for path in sorted(DRIVER.glob("gpus/*/information"))]
    names = [match[1].strip() for match in (re.search(r"^Model:(.*)$", text, re.MULTILINE) for text in texts) if match]
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
    packages = {"numba_cuda": _version("numba-cuda"), "cudnn": cudnn.version()}
    return {"driver": driver[1] if driver else None, "devices": names, **packages, "simulator": simulated}


def _memory() -> dict[str, int | None]:
    text = _read("/proc/meminfo")
    found = {name: int(value) * 1024 for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    group = _read("/sys/fs/cgroup/memory.max").strip()
    address = resource.getrlimit(resource.RLIMIT_AS)[0]
    return {
        "total": found.get("MemTotal"),
        "available": found.get("MemAvailable"),
        "group_limit": int(group) if group.isdigit() else None,
        "address_limit": None if address == resource.RLIM_INFINITY else address,
    }


def disks() -> list[dict[str, Any]]:
    """The working folder, unless it is deleted, and the temporary folder: free bytes, whether they can be written,
    and whether the kernel copies within them."""
    rows = []
    folders = {"temporary folder": tempfile.gettempdir()}
    with contextlib.suppress(FileNotFoundError):
        folders = {"working folder": os.getcwd(), **folders}
    for what, folder in folders.items():
        writable = os.access(folder, os.W_OK)
        rows.append(
            {
                "what": what,
                "path": folder,
                "free": shutil.disk_usage(folder).free,
                "writable": writable,
                "kernel_copy": _kernel_copy(folder) if writable else None,
            }
        )
    return rows


def _kernel_copy(folder: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as source, tempfile.TemporaryFile(dir=folder) as target:
            source.write(b"candle")
            source.flush()
            return os.copy_file_range(source.fileno(), target.fileno(), 6, 0, 0) == 6
    except (OSError, AttributeError):
        return False


def caches() -> dict[str, Any]:
    """Folders of the hub's and the kernels' caches, whether the hub is offline, and the variables that say so."""
    hub_root = Path(
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "huggingface"
    )
    hub = Path(os.environ.get("HF_HUB_CACHE") or hub_root / "hub")
    return {
        "hub": str(hub),
        "hub_exists": hub.is_dir(),
        "offline": os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def report() -> dict[str, Any]:
    """All of it."""
    python = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
    }
    return {
        "candle_convert": _version(DISTRIBUTION),
        "python": python,
        "platform": platform.platform(),
        "packages": packages(),
        "hardware": hardware(),
        "kernels": kernels(),
        "disks": disks(),
        "caches": caches(),
    }


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    """Verdicts on the machine: good, scarce or wrong, each with advice."""
    lines = []
    cuda = found["hardware"]["cuda"]
    may_run = cuda["driver"] is not None or cuda["simulator"]
    for row in found["packages"]:
        if row["extra"] == CUDA and not may_run:
            continue
        if row["version"] is None:
            if row["extra"] is None:
                lines.append(
                    Verdict(
                        "problem",
                        row["name"],
                        f"is required and not installed: pip install '{row['name']}{row['needs']}'",
                    )
                )
            elif row["name"] in OPTIONAL:
                lines.append(Verdict("ok", row["name"], OPTIONAL[row["name"]]))
            else:
                lines.append(Verdict("ok", row["name"], f"optional: pip install '{DISTRIBUTION}[{row['extra']}]'"))
        elif too_old(row["version"], row["needs"]):
            why = f"{row['version']} is too old: pip install '{row['name']}{row['needs']}'"
            lines.append(Verdict("problem" if row["extra"] is None else "warning", row["name"], why))
    memory = found["hardware"]["memory"]
    least = min((value for value in memory.values() if value is not None), default=None)
    if least is not None and least < SCARCE:
        lines.append(Verdict("warning", "memory", f"{least >> 20} MiB can be used; convert with --max-memory 256MiB"))
    for disk in found["disks"]:
        if not disk["writable"]:
            lines.append(Verdict("warning", disk["what"], f"{disk['path']} cannot be written to"))
        elif disk["free"] < SCARCE:
            lines.append(Verdict("warning", disk["what"], f"{disk['free'] >> 20} MiB are free in {disk['path']}"))
        elif not disk["kernel_copy"]:
            lines.append(
                Verdict(
                    "ok",
                    disk["what"],
                    "its file system does not support copy_file_range; conversions copy through memory",
                )
            )
    lines.append(_cuda_verdict(cuda))
    if found["caches"]["offline"]:
        lines.append(Verdict("ok", "hub", "is offline (HF_HUB_OFFLINE): hf:// reads the cache only"))
    if found["caches"]["variables"].get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        lines.append(Verdict("warning", "numba", "NUMBA_DISABLE_JIT is set: quantization is very slow; unset it"))
    return lines


def _cuda_verdict(cuda: dict[str, Any]) -> Verdict:
    if cuda["simulator"]:
        return Verdict(
            "warning", "cuda", "NUMBA_ENABLE_CUDASIM is set: --device cuda simulates a GPU, very slowly; unset it"
        )
    if cuda["driver"] is None:
        return Verdict("ok", "cuda", "no NVIDIA GPU or driver; models run on the CPU")
    if cuda["numba_cuda"] is None:
        return Verdict("ok", "cuda", f"for --device cuda: pip install '{DISTRIBUTION}[cuda]'")
    return Verdict("ok", "cuda", "--device cuda runs graphs on the GPU")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
