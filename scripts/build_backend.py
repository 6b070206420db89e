"""setuptools' build backend, which first checks that the links of ``spmark/`` are still there.

``spmark/impls`` and its three neighbours are relative links to the folders at the top. A zip archive from a web page,
or a checkout on Windows, may hold text files in their place: setuptools would silently build a package without code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setuptools import build_meta

FOLDERS = ("impls", "datasets", "suite", "report")
"""Sub-packages of ``spmark`` that stand at the top of the checkout."""


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


def build_editable(*args: Any, **kwargs: Any) -> str:
    """Build the wheel of an editable install (PEP 660)."""
    _check_links()
    return build_meta.build_editable(*args, **kwargs)


get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
