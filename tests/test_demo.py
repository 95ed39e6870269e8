"""The demo runs, and shows three ratios and the NKI kernel."""

import re
import sys

import pytest

from examples import demo


@pytest.mark.parametrize("words", [["water", "--rounds", "1"]])
def test_the_demo_ends_with_three_ratios(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", *words])
    monkeypatch.setenv("COLUMNS", "160")
    demo.main()
    out = capsys.readouterr().out
    assert out.startswith("water, 6-31g: 13 functions")
    assert len(re.findall(r"[\d.]+ times (?:faster|slower)", out)) == 3
    # Both sides compute the same, at times to the last bit (0e+00), and the kernel is right to single precision.
    differences = [float(found) for found in re.findall(r"│ (\de[-+]\d+) ", out)]
    assert len(differences) == 3
    assert max(differences) < 1e-8
    assert float(re.search(r"Hartree,\s+(\de-\d+) beside the CPU", out)[1]) < 1e-6
