"""Speeds of this machine for cost models, which are measured once and stored in the user's cache directory."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from trnqc.errors import StorageError
from trnqc.host.files import cache_directory, locked, write_aside

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Rates = TypeVar("Rates", bound="DataclassInstance")

# Environment variables that set the number of threads of the BLAS behind NumPy. The first one that is set counts.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def kept_rates(name: str, kind: type[Rates], measure: Callable[[], Rates], *parts: str) -> Rates:
    """Return the rates of this machine that an earlier process has stored, or measure them.

    Parameters
    ----------
    name
        The first part of the name of the file.
    kind
        A dataclass of numbers. A stored file with other fields is replaced.
    measure
        Measures the rates. A lock is held meanwhile, so that processes that start together use the same result.
    *parts
        Everything on which the rates depend besides the host, its number of CPUs, and the version and threads of NumPy.

    Returns
    -------
    Rates
        An object of the class `kind`.

    Notes
    -----
    If the cache directory cannot be read or written, no error is raised, and every process measures the rates.
    """
    path = rates_file(name, *parts)
    if (rates := read_rates(path, kind)) is not None:
        return rates
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            if (rates := read_rates(path, kind)) is None:
                rates = measure()
                write_aside(path, json.dumps(asdict(rates)))
    except (OSError, StorageError):
        pass
    return measure() if rates is None else rates


def rates_file(name: str, *parts: str) -> Path:
    """Return the path of the file that `kept_rates` reads and writes for the same arguments."""
    threads = next((os.environ[variable] for variable in THREAD_VARIABLES if variable in os.environ), "all")
    machine = (platform.node(), platform.machine(), f"{os.cpu_count()}", f"numpy{np.__version__}", f"threads{threads}")
    words = "-".join((name, *machine, *parts))
    return cache_directory() / ("".join(c if c.isalnum() or c in ".-" else "_" for c in words) + ".json")


def read_rates(path: Path, kind: type[Rates]) -> Rates | None:
    """Return the rates that a file holds, or None if it does not hold rates of this kind."""
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
