"""What tests of compiling beside a job share."""

from __future__ import annotations

import pytest

from trnqc.eri.compiled import background

# Seconds within which a builder ends.
PATIENCE = 240


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty cache, of which this process has loaded nothing; builders are stopped at the end."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(background, "_asked", set())
    monkeypatch.setattr(background, "_builders", [])
    monkeypatch.setattr(background, "_warned", None)
    monkeypatch.setattr("trnqc.jit.compile._loaded", {})
    yield tmp_path / "cache"
    for one in background._builders:
        one.process.terminate()
        one.process.wait(PATIENCE)
