"""Files of descriptions: a NumPy archive of arrays, and JSON that says where they belong. Nothing is unpickled.

description --save--> file --load--> description
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import problem_of, text_of
from trnqc.errors import InputError, TrnqcError
from trnqc.host.files import write_aside
from trnqc.mace import model as descriptions
from trnqc.mace.model import Model

FORMAT, VERSION = "trnqc-mace", 3
# Name of the JSON in the archive.
HEADER = "description"
CLASSES = {name: c for name, c in vars(descriptions).items() if dataclasses.is_dataclass(c) and isinstance(c, type)}


# What NumPy's and Python's readers of archives raise for damaged files. A RuntimeError is about encryption or about the
# method of compression.
DAMAGED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def save(model: Model, path: str | Path) -> None:
    """Write a description to a file, which `load` reads without PyTorch.

    Parameters
    ----------
    model : Model
    path : str or Path
        The file, which is replaced if it exists.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    arrays: list[np.ndarray] = []
    text = json.dumps({"format": FORMAT, "version": VERSION, "model": _encoded(model, arrays)})
    named = {str(n): array for n, array in enumerate(arrays)}
    data = io.BytesIO()
    np.savez_compressed(data, **named, **{HEADER: np.frombuffer(text.encode(), np.uint8)})  # type: ignore[arg-type]
    write_aside(Path(path), data.getvalue())


def is_description(path: str | Path) -> bool:
    """Whether a file is one that `save` has written, of any version."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return f"{HEADER}.npy" in archive.namelist()


def load_description(path: str | Path) -> Model:
    """Read a file that `save` has written.

    Raises
    ------
    InputError
        If it is not such a file, is damaged, or has another version.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive[HEADER].tobytes())
            if header.get("version") != VERSION or header.get("format") != FORMAT:
                raise InputError(
                    f"{path}: expected {FORMAT} version {VERSION}, found {header.get('format')} version "
                    f"{header.get('version')}: write the file again with this version of trnqc"
                )
            model = _decoded(header["model"], archive)
    except TrnqcError:
        raise
    except DAMAGED as error:
        raise InputError(f"{path}: expected a file that trnqc.mace.save has written: {error!r}") from error
    if not isinstance(model, Model):
        raise InputError(f"{path}: expected the description of a model, found {type(model).__name__}")
    return model


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON; arrays are appended to the list, and represented by their numbers."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Irreps):
        return {"irreps": str(value)}
    if isinstance(value, TPProblem):
        return {"product": text_of(value)}
    if isinstance(value, tuple):
        return [_encoded(part, arrays) for part in value]
    if dataclasses.is_dataclass(value):
        fields = {f.name: _encoded(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    return value


def _decoded(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(part, arrays) for part in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[str(value["array"])]
    if "irreps" in value:
        return Irreps.of(value["irreps"])
    if "product" in value:
        return problem_of(value["product"])
    return CLASSES[value["class"]](**{name: _decoded(part, arrays) for name, part in value["fields"].items()})
