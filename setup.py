"""Finds the packages; everything that describes the project is in setup.cfg."""

from setuptools import find_packages, setup

setup(
    # The ready configs live at the top level, where people look for them; the wheel carries them inside the package.
    packages=[*find_packages(include=["ds_accum", "ds_accum.*"]), "ds_accum.configs"],
    package_dir={"ds_accum.configs": "configs"},
)
