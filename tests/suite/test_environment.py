from __future__ import annotations

import platform
import subprocess

from suite_fakes import CPU

from spmark.suite import environment


def test_it_names_the_machine_and_the_software():
    found = environment.collect(CPU)
    assert found.device == CPU
    assert (found.driver, found.cuda) == ("", "")
    assert found.packages["python"] == platform.python_version()
    assert found.packages["numpy"]
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 28
    assert found.cpu
    assert environment.collect(CPU).digest == found.digest


def test_the_commit_says_whether_the_checkout_was_changed(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    assert environment._commit(tmp_path) == ""
    git("init")
    (tmp_path / "a").write_text("one")
    git("add", "a")
    git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-m", "m")
    clean = environment._commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "untracked").write_text("results")
    assert environment._commit(tmp_path) == clean
    (tmp_path / "a").write_text("two")
    assert environment._commit(tmp_path) == clean + "+"
