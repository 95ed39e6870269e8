"""A cache that others can change is refused, because its files are loaded as code."""

import os
from pathlib import Path

import pytest

from trnqc.errors import StorageError
from trnqc.jit.cache import check_owner, library_cache


def test_a_folder_of_this_user_is_accepted(tmp_path):
    check_owner(tmp_path)


def test_a_folder_for_everybody_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(folder))
    with pytest.raises(StorageError, match=r"can be written by everybody.*chmod o-w.*TRNQC_CACHE_DIR"):
        library_cache()
    folder.chmod(0o755)
    assert library_cache().directory == folder


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    owner = tmp_path.stat().st_uid
    others = os.stat_result((0o40755, 0, 0, 0, owner + 1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda *_, **__: others)
    monkeypatch.setattr(os, "getuid", lambda: owner)
    with pytest.raises(StorageError, match=f"belongs to user {owner + 1}"):
        check_owner(tmp_path)


def test_a_new_folder_is_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "new"))
    assert library_cache().directory.stat().st_mode & 0o077 == 0
