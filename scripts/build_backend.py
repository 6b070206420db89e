"""setuptools' build backend, which first checks that the links of ``spmark/`` are still there.

``spmark/impls`` and its five neighbours are relative links to the folders at the top. A zip archive from a web page,
or a checkout on Windows, may hold text files in their place: setuptools would silently build a package without code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from setuptools import build_meta

FOLDERS = ("impls", "records", "studies", "datasets", "suite", "report")
"""Sub-packages of ``spmark`` that stand at the top of the checkout."""


FINDER = "_spmark_beside_its_checkout"
FINDER_CODE = '''"""Finds spmark beside a checkout of that name, which Python takes for a package without code."""

import sys
from importlib.machinery import PathFinder


class Finder:
    """Comes first, and passes on whatever is found but such a folder."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "spmark" or (found := PathFinder.find_spec(name)) is None or found.origin is not None:
            return None
        later = (one for one in sys.meta_path if one not in (Finder, PathFinder))
        return next((spec for one in later if (spec := one.find_spec(name, path, target)) is not None), None)


sys.meta_path.insert(0, Finder)
'''


class MissingPackagesError(RuntimeError):
    """A sub-package of ``spmark`` is missing here."""


def _check_links() -> None:
    package = Path(__file__).parents[1] / "spmark"
    broken = [name for name in FOLDERS if not (package / name / "__init__.py").is_file()]
    if broken:
        raise MissingPackagesError(
            f"expected {', '.join(f'spmark/{name}' for name in broken)} to be links to the folders of the same names "
            f"at the top, found no such folders in {package}. Zip archives and Windows without links lose them: use "
            "`git clone` (on Windows with `git -c core.symlinks=true clone`), a tar archive, the sdist or the wheel."
        )


def build_wheel(*args: Any, **kwargs: Any) -> str:
    """Build a wheel (PEP 517)."""
    _check_links()
    return build_meta.build_wheel(*args, **kwargs)


def build_sdist(*args: Any, **kwargs: Any) -> str:
    """Build a source archive, in which the links are folders (PEP 517)."""
    _check_links()
    return build_meta.build_sdist(*args, **kwargs)


def build_editable(wheel_directory: str, *args: Any, **kwargs: Any) -> str:
    """Build the wheel of an editable install (PEP 660), whose packages are found beside the checkout, too."""
    _check_links()
    name: str = build_meta.build_editable(wheel_directory, *args, **kwargs)
    _add_to_wheel(Path(wheel_directory) / name, {f"{FINDER}.py": FINDER_CODE, f"{FINDER}.pth": f"import {FINDER}\n"})
    return name


def _add_to_wheel(path: Path, files: Mapping[str, str]) -> None:
    with ZipFile(path) as wheel:
        held = {info: wheel.read(info) for info in wheel.infolist()}
    with ZipFile(path, "w", ZIP_DEFLATED) as wheel:
        for info, content in held.items():
            is_list = info.filename.endswith(".dist-info/RECORD")
            more = "".join(f"{name},,\n" for name in files) if is_list else ""
            wheel.writestr(info, content + more.encode())
        for name, text in files.items():
            wheel.writestr(name, text)


get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
