"""Folders of prepared models, which programs in C++ open without Python: weights, program, kernels and the driver.

program -> model.trnqc (folder.h describes it), the files of its kernels, libtrnqc_mace.so, trnqc_mace.h
"""

from __future__ import annotations

import io
import platform
import shutil
import zlib
from pathlib import Path

import numpy as np

from trnqc.errors import StorageError
from trnqc.host.files import write_aside
from trnqc.jit import CompiledFunction, find_compiler
from trnqc.jit.shipped import cpu_features
from trnqc.mace.driver.driver import HEADER, driver_library
from trnqc.mace.driver.steps import DriverProgram

MODEL, LIBRARY = "model.trnqc", "libtrnqc_mace.so"
MAGIC, VERSION, ALIGNMENT = b"TRNQMACE", 1, 64
# Bytes of the file before those that the check sum covers.
UNCHECKED = 32


def write(program: DriverProgram, folder: str | Path) -> Path:
    """Write a program with its weights and kernels to a folder, made if absent, and return it.

    Raises StorageError if a file cannot be written, CompilerError if the driver cannot be compiled.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, name in ((HEADER, HEADER.name), (driver_library(), LIBRARY)):
            _copy(source, folder / name)
        lines = [f"machine {platform.machine()}", f"features {' '.join(cpu_features(find_compiler()))}"]
        lines += [_kernel(function, folder) for function in program.functions]
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error}") from error
    write_aside(folder / MODEL, _file("\n".join(lines).encode(), program))
    return folder


def _kernel(function: CompiledFunction, folder: Path) -> str:
    """Copy the library of a function, and return its line."""
    assert function.path is not None
    data = function.path.read_bytes()
    _copy(function.path, folder / function.path.name)
    return f"kernel {function.path.name} {function.signature.name} {len(data)} {zlib.crc32(data)}"


def _copy(source: Path, target: Path) -> None:
    """Copy a file aside and rename it, as a process may have loaded the old one."""
    aside = target.with_name(f".{target.name}")
    shutil.copyfile(source, aside)
    aside.replace(target)


def _file(text: bytes, program: DriverProgram) -> bytes:
    words, constants = program.words(), list(program.constants.values())
    out = io.BytesIO()
    out.write(bytes(UNCHECKED))
    out.write(np.array([len(text), len(words), len(constants), *(c.nbytes for c in constants)], np.int64).tobytes())
    for part in (text, words.tobytes(), *(constant.tobytes() for constant in constants)):
        out.write(bytes(-out.tell() % ALIGNMENT))
        out.write(part)
    checked = out.getvalue()[UNCHECKED:]
    head = np.array([VERSION, UNCHECKED + len(checked), zlib.crc32(checked)], np.int64).tobytes()
    return MAGIC + head + checked
