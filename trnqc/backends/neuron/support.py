"""Versions of torch-neuronx, Python and chips that the vendor supports together, as of Neuron 2.33.

docs/trainium.md has the same table with sources. A combination outside of it may work. `trnqc doctor` says that it is
outside, and no backend is refused because of it.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True)
class Support:
    """One line of the vendor's matrix.

    Attributes
    ----------
    path
        How tensors reach the device.
    torch_neuronx
        The first two numbers of the package's version, which are those of PyTorch.
    pythons
        Versions of Python with a wheel.
    chips
        Chips, by the beginning of the instance type.
    """

    path: str
    torch_neuronx: Version
    pythons: tuple[Version, ...]
    chips: tuple[str, ...]


_NATIVE_PYTHONS = ((3, 12), (3, 13), (3, 14))
MATRIX = (
    Support("PyTorch/XLA", (2, 9), ((3, 11), (3, 12)), ("trn1", "inf2", "trn2")),
    Support("native device", (2, 13), _NATIVE_PYTHONS, ("trn2", "trn3")),
    Support("native device", (2, 14), _NATIVE_PYTHONS, ("trn2", "trn3")),
)


def outside(torch_neuronx: Version, python: Version, instance: str) -> str:
    """Say which part of a combination is outside of `MATRIX`, or return "" if it is inside.

    Parameters
    ----------
    torch_neuronx
        Version of the package.
    python
        Version of Python.
    instance
        Instance type, such as "trn2.48xlarge"; "" if it is unknown, which is not judged.

    Examples
    --------
    >>> outside((2, 14, 3, 0), (3, 12), "trn1.2xlarge")
    'torch-neuronx 2.14 is supported on trn2 and trn3, this machine is a trn1.2xlarge'
    """
    row = next((row for row in MATRIX if row.torch_neuronx == torch_neuronx[:2]), None)
    name = f"torch-neuronx {_text(torch_neuronx[:2])}"
    if row is None:
        known = ", ".join(_text(row.torch_neuronx) for row in MATRIX)
        return f"{name} is not among the versions that Neuron 2.33 supports: {known}"
    if instance and not instance.startswith(row.chips):
        return f"{name} is supported on {' and '.join(row.chips)}, this machine is a {instance}"
    if python[:2] not in row.pythons:
        return f"{name} is supported with Python {', '.join(map(_text, row.pythons))}, this is {_text(python[:2])}"
    return ""


def _text(version: Version) -> str:
    return ".".join(map(str, version))
