"""The doors to the machines: `get` one by name, `select` one for a job, `statuses` of all.

A backend is one module and one class; modules are imported when first asked for, so that an absent vendor package costs
nothing and breaks nothing else.
"""

from __future__ import annotations

import functools
import importlib

from trnqc.backends.base import Backend, BackendStatus, Selection, check_precision
from trnqc.errors import BackendUnavailable, InputError

__all__ = ["Backend", "BackendStatus", "Selection", "get", "names", "select", "statuses"]

_CLASSES = {
    "cpu": ("trnqc.backends.cpu", "Cpu"),
    "simulator": ("trnqc.backends.simulator", "Simulator"),
    "neuron": ("trnqc.backends.neuron", "Neuron"),
}


def names() -> tuple[str, ...]:
    """Names of all backends, usable or not."""
    return tuple(_CLASSES)


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
    """The state of every backend here by name, in the order of `names`."""
    return {name: _status(name) for name in names()}


def get(name: str) -> Backend:
    """The backend called `name`; raises BackendUnavailable with reason and hint when it cannot run here."""
    if name not in _CLASSES:
        raise InputError(f"no backend is called {name!r}; there are {', '.join(names())}, and auto to choose one")
    status = _status(name)
    if not status.usable:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {status.reason}. {status.hint}".rstrip())
    return _instance(name)


def select(name: str, precision: str) -> Selection:
    """The backend for a job: `name` itself, or for "auto" neuron when usable and able to do `precision`, else cpu.

    Raises BackendUnavailable for a named backend that cannot run, UnsupportedPrecision for one without the precision.
    The simulator is never chosen by itself: it computes the same numbers, slowly.
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
