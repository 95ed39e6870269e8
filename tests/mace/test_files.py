"""Descriptions are written and read without a loss, and wrong files are refused."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from tests.mace.descriptions import CASES, description
from trnqc.cli import main
from trnqc.errors import InputError
from trnqc.mace import files
from trnqc.mace.files import load_description, save
from trnqc.mace.source import description as described


def equal(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if dataclasses.is_dataclass(a) and type(a).__module__ == "trnqc.mace.model":
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    return a == b


@pytest.mark.parametrize("case", CASES)
def test_a_description_is_the_same_after_writing_and_reading(case, tmp_path):
    model = description(**CASES[case])
    save(model, tmp_path / "model.npz")
    assert equal(load_description(tmp_path / "model.npz"), model)
    assert equal(described(tmp_path / "model.npz", "x"), model)


def test_other_files_versions_and_heads_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    save(description(), path)
    with pytest.raises(InputError, match="expected x, the only one of the description; found y"):
        described(path, "y")
    monkeypatch.setattr(files, "VERSION", 2)
    save(description(), tmp_path / "old.npz")
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"old.npz: expected trnqc-mace version 3, found .* version 2: write the file"):
        described(tmp_path / "old.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(InputError, match="expected a file that"):
        load_description(tmp_path / "other.npz")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match="expected a file"):
        load_description(path)


def test_the_command_describes_prepares_and_writes(tmp_path, capsys):
    save(description(), tmp_path / "model.npz")
    options = ["--prepare", "--dtype", "float64", "--output", str(tmp_path / "copy.npz")]
    assert main(["mace", str(tmp_path / "model.npz"), *options]) == 0
    out = capsys.readouterr().out
    assert "elements: 1, 6, 8\nhead: x" in out and "float64: kernels ready after" in out
    assert equal(load_description(tmp_path / "copy.npz"), description())
    assert main(["mace", str(tmp_path / "missing.model")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_chebyshev_polynomials_are_read_with_a_warning_about_mace_torch(tmp_path):
    expected = "mace-torch's forces and stress are not the derivative of its energy. Those of trnqc.mace are"
    one = description(kind="chebyshev")
    save(one, tmp_path / "chebyshev.npz")
    with pytest.warns(UserWarning, match=expected) as found:
        described(tmp_path / "chebyshev.npz")
    assert len(found) == 1
    save(description(), tmp_path / "bessel.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert described(one) is one
        described(tmp_path / "bessel.npz")
