"""The repository's root is the package candle_convert; its folders with an __init__.py are the sub-packages."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = ("convert", "formats", "models", "nn", "ops", "optim", "runtime", "tensors", "torch_compat", "training")


class BuildPackage(build_py):
    """Leaves this file, which lies in the package's folder, out of the wheel."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if module[:2] != ("candle_convert", "setup")]


found = find_packages(include=[*FOLDERS, *(f"{folder}.*" for folder in FOLDERS)])
setup(packages=["candle_convert", *(f"candle_convert.{name}" for name in found)], cmdclass={"build_py": BuildPackage})
