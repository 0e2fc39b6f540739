"""``doctor``: report of the installation and the machine, with advice."""

from __future__ import annotations

import dataclasses

import click

from ...runtime.base.errors import printable
from ...runtime.base.units import counted
from ...runtime.jit import isa
from ..cli import shared_options
from ..console.output import current, human_size

GROUP = "Tools"
EPILOG = """\b
Examples
  candle-convert doctor
  candle-convert doctor --json
  cd /data && candle-convert doctor
"""
MARKS = {"ok": "·", "warning": "!", "problem": "✗"}


@click.command("doctor", epilog=EPILOG)
@shared_options.options()
def COMMAND() -> int:  # noqa: N802
    """Report versions, cores, memory, disks and caches, with advice.

    Exits with 1 when a required package is missing.
    """
    from ..check import machine

    found = machine.report()
    lines = machine.verdicts(found)
    problems = [line for line in lines if line.status == "problem"]
    out = current()
    python, hardware, memory, caches = found["python"], found["hardware"], found["hardware"]["memory"], found["caches"]
    out.say(
        f"candle-convert {found['candle_convert']} · Python {python['version']} ({python['implementation']}) · "
        f"{found['platform']}"
    )
    out.say(printable(python["executable"]))
    out.say(f"cpu      {counted(hardware['cores'], 'core')} · {hardware['cpu']} · {' '.join(hardware['features'])}")
    kernels = found["kernels"]
    out.say(
        f"kernels  {kernels['level']} · {isa.VARIABLE} {'forces it' if kernels['forced'] else 'forces one'} of "
        f"{' '.join(kernels['offered'])}"
    )
    for name, taken in kernels["paths"].items():
        out.say(f"         {name}: {taken}")
    sizes = [f"{human_size(value)} {name.replace('_', ' ')}" for name, value in memory.items() if value is not None]
    out.say(f"memory   {' · '.join(sizes)}")
    cuda = hardware["cuda"]
    driver = (
        f"driver {cuda['driver']}"
        if cuda["driver"]
        else "driver loaded"
        if hardware["cuda_driver"]
        else "no GPU, not needed"
    )
    versions = "".join(
        f" · {name} {cuda[key] or 'not installed'}" for name, key in (("numba-cuda", "numba_cuda"), ("cuDNN", "cudnn"))
    )
    out.say(printable(f"cuda     {driver}{versions}{''.join(f' · {name}' for name in cuda['devices'])}"))
    for disk in found["disks"]:
        copy = "kernel copy" if disk["kernel_copy"] else "no kernel copy" if disk["writable"] else "not writable"
        out.say(f"disk     {human_size(disk['free'])} free · {copy} · {disk['what']} {printable(disk['path'])}")
    out.say(
        f"hub      {printable(caches['hub'])}{'' if caches['hub_exists'] else ' (empty)'}"
        f"{' · offline' if caches['offline'] else ''}"
    )
    for name, value in caches["variables"].items():
        out.say(f"env      {name}={printable(value)}")
    rows = [
        (row["name"], row["version"] or "not installed", row["needs"], row["extra"] or "") for row in found["packages"]
    ]
    out.say()
    out.table(("package", "version", "needs", "extra"), rows)
    out.say()
    for line in lines:
        out.say(f"{MARKS[line.status]} {line.subject}: {printable(line.message)}")
    out.say("✗ something required is missing" if problems else "✓ everything required is installed")
    out.emit({**found, "verdicts": [dataclasses.asdict(line) for line in lines]}, ok=not problems)
    return 1 if problems else 0
