"""List the packages behind the mapping in pyproject.toml.

setuptools does not discover packages inside mapped folders, so they are derived here: every folder with an
``__init__.py`` under ``impls``, ``datasets``, ``suite`` and ``report`` is a sub-package of ``spmark``.
"""

from __future__ import annotations

from setuptools import find_packages, setup

MAPPED = ("impls", "datasets", "suite", "report")

setup(
    packages=["spmark"]
    + [f"spmark.{folder}" for folder in MAPPED]
    + [f"spmark.{folder}.{package}" for folder in MAPPED for package in find_packages(folder)]
)
