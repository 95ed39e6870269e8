"""Models prepared for programs without Python.

model or its file -> evaluator -> program -> folder (folder.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trnqc.errors import InputError
from trnqc.mace.driver.folder import write
from trnqc.mace.evaluate import Evaluator


def prepare(evaluator: Evaluator, folder: str | Path, elements: Sequence[int] | None = None) -> Path:
    """Write a model to a folder from which programs in C and C++ evaluate it, and LAMMPS does.

    Parameters
    ----------
    evaluator : Evaluator
        The evaluator of the model, with the type and the radial functions that the programs will use.
    folder : str or Path
        The folder, which is made if it does not exist.
    elements : sequence of int, optional
        Atomic numbers. Splines are fitted for pairs of these; by default for all of the model.

    Returns
    -------
    Path
        The folder: the header trnqc_mace.h, the library libtrnqc_mace.so, kernels and weights. The kernels are for this
        machine, and others with the same CPU.

    Raises
    ------
    InputError
        If the model does not have an element, or splines cannot meet their tolerance.
    StorageError
        If a file cannot be written.
    CompilerError
        If a compiler is missing or fails.

    Examples
    --------
    >>> from trnqc.mace import Evaluator, description, prepare
    >>> prepare(Evaluator(description("my.model")), "prepared")  # doctest: +SKIP
    PosixPath('prepared')
    """
    known = evaluator.model.numbers
    chosen = known if elements is None else tuple(elements)
    if missing := sorted(set(chosen) - set(known)):
        raise InputError(f"elements: the model has the elements {', '.join(map(str, known))}; found {missing}")
    return write(evaluator.program(np.array([known.index(z) for z in chosen], np.int64)), folder)
