"""The repository's root is the package candle_convert; its folders with an __init__.py are the sub-packages.

``CANDLE_WHEEL_KERNELS=LEVEL[,LEVEL]`` makes a wheel for this platform, with machine code of common kernels for the
levels named (`runtime/jit/kernel_pack.py`).
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDERS = ("convert", "formats", "models", "nn", "ops", "optim", "runtime", "tensors", "torch_compat", "training")
LEVELS = os.environ.get("CANDLE_WHEEL_KERNELS", "")


class BuildPackage(build_py):
    """Leaves this file, which lies in the package's folder, out of the wheel, and adds machine code."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if module[:2] != ("candle_convert", "setup")]

    def run(self):
        super().run()
        if LEVELS and not self.editable_mode:
            self.announce(f"compiling the kernels of common models for {LEVELS}: some minutes", level=2)
            folder = Path(self.build_lib).resolve()
            pack = folder / "candle_convert" / "runtime" / "jit" / "kernels.pack"
            paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
            command = [sys.executable, "-m", "candle_convert.convert.kernels.pack_kernels", LEVELS, str(pack)]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, cwd=folder, check=True)


class PlatformWheel(bdist_wheel):
    """A wheel with machine code runs on this platform, under every version of Python."""

    def get_tag(self):
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if LEVELS else tag


class PackedDistribution(Distribution):
    """With machine code, the package is not pure Python."""

    def has_ext_modules(self):
        return bool(LEVELS)


found = find_packages(include=[*FOLDERS, *(f"{folder}.*" for folder in FOLDERS)])
project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())["project"]
setup(
    packages=["candle_convert", *(f"candle_convert.{name}" for name in found)],
    cmdclass={"build_py": BuildPackage, "bdist_wheel": PlatformWheel},
    distclass=PackedDistribution,
    setup_requires=project["dependencies"] if LEVELS else [],
)
