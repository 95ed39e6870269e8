"""The registry of backends: the only place where their names stand.

    get(name)                one that can run here, or an error that says why it cannot
    select(name, precision)  the one for a job; "auto" chooses
    program_backend(name)    the one for generated programs, such as integrals; "auto" chooses
    devices(name)            the devices of one, for whoever sends generated programs to them
    statuses()               the state of all of them, as ``trnqc doctor`` shows it

A backend is one folder and one class (see `base`). Its modules are imported when it is first asked for, so that an
absent package of a vendor costs nothing and breaks nothing else.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from trnqc.backends.base import Backend, BackendStatus, Selection, check_precision
from trnqc.errors import BackendUnavailable, InputError

__all__ = [
    "Backend",
    "BackendStatus",
    "Selection",
    "devices",
    "get",
    "names",
    "pair_backends",
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
# Backends without matrix products and pair energies, so that listing the others imports none of them.
_GENERATED_ONLY = ("cuda",)


def names() -> tuple[str, ...]:
    """Names of all backends, usable or not."""
    return tuple(_CLASSES)


def program_backend(name: str) -> str:
    """Return the name of the backend for generated programs: `name`, or "cpu" for "auto".

    Raises InputError for any other name. Whether the backend can run here is not checked.
    """
    if name not in ("auto", *_GENERATED):
        raise InputError(f"backend is auto or one of {', '.join(_GENERATED)}, found {name!r}")
    return "cpu" if name == "auto" else name


def pair_backends() -> tuple[str, ...]:
    """Names of the backends with matrix products and MP2 pair energies, usable or not."""
    return tuple(name for name in _CLASSES if name not in _GENERATED_ONLY)


@functools.cache
def _instance(name: str) -> Backend:
    module, cls = _CLASSES[name]
    return getattr(importlib.import_module(module), cls)()


def _status(name: str) -> BackendStatus:
    try:
        return _instance(name).status()
    except ImportError as error:
        reason = f"its module cannot be imported: {error}"
        return BackendStatus(usable=False, reason=reason, hint=f"install what provides {error.name or 'it'}")


def statuses() -> dict[str, BackendStatus]:
    """The state of every backend on this machine by name, in the order of `names`."""
    return {name: _status(name) for name in names()}


def get(name: str) -> Backend:
    """Return the backend called `name`.

    Raises
    ------
    InputError
        If there is none of that name.
    BackendUnavailable
        If it cannot run here; the message gives the reason and what to install.
    """
    status = _status(_known(name))
    if not status.usable:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {status.reason}. {status.hint}".rstrip())
    return _instance(name)


def devices(name: str) -> tuple[Any, ...]:
    """Return the devices of the backend called `name`, without asking for the rest of its status.

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
        raise InputError(f"no backend is called {name!r}; there are {', '.join(names())}, and auto to choose one")
    return name


def select(name: str, precision: str) -> Selection:
    """Choose the backend for matrix products or pair energies.

    Parameters
    ----------
    name
        A backend, or "auto": neuron when it is usable and has `precision`, else cpu. The simulator is never chosen
        automatically, because it computes the same numbers slowly.
    precision
        One of `trnqc.types.PRECISIONS`.

    Raises
    ------
    BackendUnavailable
        If the backend that was named cannot run.
    UnsupportedPrecision
        If it does not have the precision.
    """
    if name != "auto":
        backend = get(name)
        check_precision(backend, precision)
        return Selection(backend, f"{name}: asked for by name")
    neuron = _status("neuron")
    if neuron.usable and precision in _instance("neuron").precisions:
        return Selection(_instance("neuron"), "neuron: a usable device was found")
    why = f"neuron has no {precision}" if neuron.usable else f"neuron is not usable ({neuron.reason})"
    backend = get("cpu")
    check_precision(backend, precision)
    return Selection(backend, f"cpu: {why}")
