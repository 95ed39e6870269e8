"""The registry of backends, the only place that lists their names.

    get(name)                a backend that can run here, or an error that says why it cannot
    select(name, precision)  the backend of a job; "auto" chooses one
    program_backend(name)    the backend of generated programs, such as integrals; "auto" chooses one
    devices(name)            the devices of a backend, to which generated programs are sent
    statuses()               the status of all backends, which ``trnqc doctor`` prints

A backend is one folder with one class (see `base`). Its modules are imported when it is used for the first time, so
that a missing package of a vendor affects this backend only.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from trnqc.backends.base import Backend, BackendStatus, Selection, check_precision
from trnqc.errors import BackendUnavailable, InputError, PackageTooOld

__all__ = [
    "Backend",
    "BackendStatus",
    "Selection",
    "devices",
    "get",
    "names",
    "program_backend",
    "select",
    "statuses",
]

_CLASSES = {
    "cpu": ("trnqc.backends.cpu.backend", "Cpu"),
    "simulator": ("trnqc.backends.simulator.backend", "Simulator"),
    "neuron": ("trnqc.backends.neuron.backend", "Neuron"),
    "cuda": ("trnqc.backends.cuda.backend", "Cuda"),
}

# Backends that run generated programs, for integrals and tensor products.
_GENERATED = ("cpu", "cuda")


def names() -> tuple[str, ...]:
    """The names of all backends, usable or not."""
    return tuple(_CLASSES)


def program_backend(name: str) -> str:
    """Return the name of the backend for generated programs: `name`, or "cpu" for "auto".

    Raises InputError for any other name. Whether the backend can run here is not checked.
    """
    if name not in ("auto", *_GENERATED):
        raise InputError(f"backend is auto or one of {', '.join(_GENERATED)}, found {name!r}")
    return "cpu" if name == "auto" else name


@functools.cache
def _instance(name: str) -> Backend:
    module, cls = _CLASSES[name]
    return getattr(importlib.import_module(module), cls)()


def _status(name: str) -> BackendStatus:
    try:
        return _instance(name).status()
    except PackageTooOld as error:
        return BackendStatus(usable=False, reason=str(error), hint="")
    except ImportError as error:
        reason = f"its module cannot be imported: {error}"
        return BackendStatus(usable=False, reason=reason, hint=f"install the package of {error.name or 'it'}")


def statuses() -> dict[str, BackendStatus]:
    """The status of every backend on this machine by name, in the order of `names`."""
    return {name: _status(name) for name in names()}


def get(name: str) -> Backend:
    """Return the backend called `name`.

    Raises
    ------
    InputError
        If there is no backend of that name.
    BackendUnavailable
        If it cannot run here. The message contains the reason and what to install.
    """
    status = _status(_known(name))
    if not status.usable:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {status.reason}. {status.hint}".rstrip())
    return _instance(name)


def devices(name: str) -> tuple[Any, ...]:
    """Return the devices of the backend called `name`, without determining the rest of its status.

    Raises
    ------
    InputError
        If there is no backend of that name.
    BackendUnavailable
        If no device can be used.
    """
    return _instance(_known(name)).devices()


def _known(name: str) -> str:
    if name not in _CLASSES:
        raise InputError(f"no backend is called {name!r}; choose one of {', '.join(names())}, or auto")
    return name


def select(name: str, precision: str) -> Selection:
    """Choose the backend for matrix products or pair energies.

    Parameters
    ----------
    name
        The name of a backend, or "auto". "auto" stands for neuron if it is usable and has `precision`, and for cpu
        otherwise. It never stands for the simulator, which computes the same numbers slowly, nor for cuda, whose speed
        has not been measured.
    precision
        One of `trnqc.types.PRECISIONS`.

    Returns
    -------
    Selection
        The backend and the reason for the choice.

    Raises
    ------
    InputError
        If there is no backend of that name.
    BackendUnavailable
        If the backend cannot run here.
    UnsupportedPrecision
        If it does not have the precision, or if its device does not keep what the precision promises.
    """
    if name != "auto":
        backend = get(name)
        check_precision(backend, precision)
        return Selection(backend, f"{name}: asked for by name")
    neuron = _status("neuron")
    if neuron.usable and precision in _instance("neuron").precisions:
        check_precision(_instance("neuron"), precision)
        return Selection(_instance("neuron"), "neuron: a usable device was found")
    why = f"neuron has no {precision}" if neuron.usable else f"neuron is not usable ({neuron.reason})"
    backend = get("cpu")
    check_precision(backend, precision)
    return Selection(backend, f"cpu: {why}")
