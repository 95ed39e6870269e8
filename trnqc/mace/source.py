"""Load a model description from a file of `trnqc.mace.save`, a file of mace-torch, or a module of mace-torch."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.mace.files import is_description, load_description
from trnqc.mace.model import Model
from trnqc.mace.reader import load, read

# PyTorch has no derivative of special.chebyshev_polynomial_t, with which mace-torch computes them.
CHEBYSHEV = (
    "the radial functions of this model are Chebyshev polynomials, which PyTorch does not differentiate: mace-torch's "
    "forces and stress are not the derivative of its energy. Those of trnqc.mace are, and differ from them"
)


def description(source: str | Path | Model | Any, head: str | None = None) -> Model:
    """Return the description of a model.

    Parameters
    ----------
    source : str, Path, Model or torch.nn.Module
        A file that `trnqc.mace.save` or ``torch.save`` has written, a description, or a model of mace-torch. PyTorch
        unpickles its files, which can run any code: open files only that you trust.
    head : str, optional
        The head of a model with several. A description has one head.

    Raises
    ------
    InputError
        If there is no such file or head, or if the file does not contain a model.
    UnsupportedError
        If the model has a block that cannot be described; the message names it.

    Warns
    -----
    UserWarning
        If a model that is read has Chebyshev polynomials as radial functions, for which mace-torch's forces are wrong.

    Examples
    --------
    >>> description("no_such.model")
    Traceback (most recent call last):
    trnqc.errors.InputError: no_such.model: there is no such file
    """
    if isinstance(source, Model):
        if head not in (None, source.head):
            raise InputError(f"head: expected {source.head}, the only one of the description; found {head}")
        return source
    model = _read(source, head)
    if model.basis.kind == "chebyshev":
        warnings.warn(CHEBYSHEV, stacklevel=2)
    return model


def descriptions(source: str | Path | Model | Any | Sequence[Any], head: str | None = None) -> tuple[Model, ...]:
    """The descriptions of the members of a committee, a sequence of sources or a pattern of files; one for a source."""
    members: Sequence[Any] = source if isinstance(source, (list, tuple)) else [source]
    if isinstance(source, str) and glob.has_magic(source) and not Path(source).is_file():
        members = sorted(glob.glob(source))
    if not members:
        raise InputError(f"model: expected at least one model; found none by {source!r}")
    return tuple(description(member, head) for member in members)


def _read(source: str | Path | Any, head: str | None) -> Model:
    if isinstance(source, (str, Path)):
        if not Path(source).is_file():
            raise InputError(f"{source}: there is no such file")
        if not is_description(source):
            return load(source, head)
        return description(load_description(source), head)
    return read(source, head)
