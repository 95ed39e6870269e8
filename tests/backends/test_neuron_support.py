"""The support matrix of the vendor's packages: what lies outside of it, and that the page has the same versions."""

from pathlib import Path

import pytest

from trnqc.backends.neuron import backend, packages
from trnqc.backends.neuron.backend import Neuron
from trnqc.backends.neuron.support import MATRIX, outside

PAGE = Path(__file__).parents[2] / "docs" / "trainium.md"


@pytest.mark.parametrize(
    "torch_neuronx, python, instance, words",
    [
        ((2, 9, 0, 2), (3, 12, 1), "trn1.32xlarge", ""),
        ((2, 9, 0, 2), (3, 11), "", ""),
        ((2, 14, 3, 0), (3, 14), "trn3.48xlarge", ""),
        ((2, 9, 0, 2), (3, 14), "trn1.2xlarge", "torch-neuronx 2.9 is supported with Python 3.11, 3.12, this is 3.14"),
        ((2, 13, 3, 0), (3, 12), "trn1.2xlarge", "is supported on trn2 and trn3, this machine is a trn1.2xlarge"),
        ((2, 12), (3, 12), "trn2.48xlarge", "torch-neuronx 2.12 is not among the versions that Neuron 2.33 supports"),
    ],
)
def test_outside(torch_neuronx, python, instance, words):
    found = outside(torch_neuronx, python, instance)
    assert found.endswith(words) if words.startswith("is") else found.startswith(words) and bool(found) == bool(words)


def test_the_page_has_every_version_of_the_matrix():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for support in MATRIX:
        version = ".".join(map(str, support.torch_neuronx))
        (row,) = [line for line in rows if f"| {version}." in line]
        for python in support.pythons:
            assert ".".join(map(str, python)) in row
        for chip in support.chips:
            assert chip.capitalize() in row


def test_the_status_names_what_is_outside(monkeypatch):
    package = packages.Package("torch-neuronx", "2.14.3.0.1", "")
    monkeypatch.setattr(packages, "device_files", lambda: ("/dev/neuron0",))
    monkeypatch.setattr(
        packages, "find", lambda name: package if name == "torch-neuronx" else packages.Package("nki", "0.7.0", "")
    )
    monkeypatch.setattr(packages, "native_path", lambda: True)
    monkeypatch.setattr(backend, "instance_type", lambda: "trn1.2xlarge")
    status = Neuron().status()
    assert status.usable
    assert status.hint == "torch-neuronx 2.14 is supported on trn2 and trn3, this machine is a trn1.2xlarge"
