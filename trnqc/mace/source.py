"""Descriptions from what users have: files of descriptions, files of mace-torch, or modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.mace.files import is_description, load_description
from trnqc.mace.model import Model
from trnqc.mace.reader import load, read


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

    Examples
    --------
    >>> description("no_such.model")
    Traceback (most recent call last):
    trnqc.errors.InputError: no_such.model: there is no such file
    """
    if isinstance(source, (str, Path)):
        if not Path(source).is_file():
            raise InputError(f"{source}: there is no such file")
        if not is_description(source):
            return load(source, head)
        source = load_description(source)
    if not isinstance(source, Model):
        return read(source, head)
    if head not in (None, source.head):
        raise InputError(f"head: expected {source.head}, the only one of the description; found {head}")
    return source
