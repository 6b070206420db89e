"""Environments for commits that cost seconds: a wheel of the commit, and dependencies borrowed from this interpreter.

Python searches a folder that a ``.pth`` file names, but does not read ``.pth`` files inside that folder. An editable
install of the checkout is such a file and stays out, so ``spmark`` is the commit's wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.console import log


class WheelEnvironment(environment.Environment):  # type: ignore[misc]
    """A bare virtual environment of the interpreter that runs airspeed velocity, with its packages in sight.

    Requirements of the configuration's matrix are installed into the environment and hide the borrowed ones.
    """

    tool_name = "wheel"
    matches_python_fallback = False

    def __init__(self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: Any) -> None:
        self._python = python
        self._requirements = requirements
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        """Say whether ``python`` is this interpreter's version: packages are borrowed from this interpreter alone."""
        return python == f"{sys.version_info.major}.{sys.version_info.minor}"

    def _setup(self) -> None:
        log.info(f"Creating an environment for {self.name} beside {sys.prefix}")
        util.check_call([sys.executable, "-m", "venv", "--without-pip", self._path])
        python = Path(self.find_executable("python"))
        purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
        # The new environment's own folder, which only its interpreter knows.
        answer = subprocess.run([str(python), "-c", purelib], check=True, capture_output=True, text=True)
        borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        Path(answer.stdout.strip(), "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
        wanted = [f"{name.removeprefix('pip+')}{_specifier(value)}" for name, value in self._requirements.items()]
        if wanted:
            log.info(f"Installing {', '.join(wanted)}")
            self.run_executable("python", ["-m", "pip", "install", "--quiet", "--ignore-installed", *wanted])

    def check_presence(self) -> bool:
        """Say whether the environment is complete; pip is borrowed, so a program ``pip`` is not expected."""
        try:
            info = self.load_info_file(self._path)
            self.run_executable("python", ["-c", "import pip, asv_runner"])
        except (util.UserError, util.ProcessError, OSError):
            return False
        return bool(info.get("requirements") == self._requirements and info.get("python") == self._python)

    def _uninstall_project(self) -> None:
        """Uninstall, and remove machine code beside the modules, which older commits would take for their own."""
        super()._uninstall_project()
        for left in Path(self._path).glob("lib/python*/site-packages/spmark"):
            shutil.rmtree(left)

    def run(self, args: Sequence[str], **kwargs: Any) -> Any:
        """Run the environment's interpreter; folders of the checkout must not shadow packages."""
        kwargs["env"] = {**(kwargs.get("env") or os.environ), "PYTHONSAFEPATH": "1"}
        return self.run_executable("python", list(args), **kwargs)


def _specifier(value: str) -> str:
    if not value:
        return ""
    return value if value[0] in "<>=!~" else f"=={value}"
