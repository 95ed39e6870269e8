"""Registers of the engines: 32-bit integers whose values are known only while the program runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory.tensor import NkiTensor


class VirtualRegister:
    """A register. The compiler refuses Python arithmetic and control flow on registers; here they raise TypeError.

    Parameters
    ----------
    state : int, optional
        Value; None until the register is written.
    frozen : bool
        Whether the register is a loop index, which the kernel must not write.
    """

    __slots__ = ("frozen", "value", "visit", "writer")

    def __init__(self, state: int | None = None, frozen: bool = False):
        self.value = state
        self.frozen = frozen
        self.visit = loop_depth()
        self.writer = -1  # id of the instruction that last wrote it

    def _no_python_value(self, *_: object) -> int:
        raise TypeError(
            "a VirtualRegister has no value while the kernel is being built; use it as scalar_offset "
            "or as a loop bound (nl.fori_loop, nl.while_loop)"
        )

    __int__ = __index__ = __bool__ = __float__ = __iter__ = _no_python_value

    def __repr__(self) -> str:
        return f"VirtualRegister({self.value})"


def loop_depth() -> int:
    """Return the number of device loops around the current position of the kernel; 0 outside a kernel."""
    run = machine.running()
    return len(run.loop_path) if run is not None else 0


def read(register: Any) -> int:
    """Return the current value of a register or scalar; raise NkiValidationError if it was never written."""
    if register.value is None:
        raise NkiValidationError("register is read before anything was moved or loaded into it")
    return int(register.value)


def _writable(register: object, op: str) -> VirtualRegister:
    if not isinstance(register, VirtualRegister):
        raise NkiValidationError(f"{op} register must come from nisa.register_alloc(), got {type(register).__name__}")
    if register.frozen:
        raise NkiValidationError(f"{op} dst is a loop index, which the loop alone may change")
    return register


def wrap(value: int) -> int:
    """Wrap an integer to 32 bits, as the register does."""
    return (int(value) + 2**31) % 2**32 - 2**31


def register_alloc(x: int | None = None) -> VirtualRegister:
    """Allocate a register with the initial value ``x``, or without a value if ``x`` is None."""
    machine.current()
    if x is not None and (isinstance(x, bool) or not isinstance(x, (int, np.integer))):
        raise NkiValidationError(f"register_alloc x must be None or an int, got {x!r}; load tensors with register_load")
    register = VirtualRegister()
    if x is not None:
        register_move(register, x)
    return register


def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """Set the register ``dst`` to ``src``, an integer constant or another register."""
    run = machine.current()
    target = _writable(dst, "register_move")
    if isinstance(src, VirtualRegister):
        value, visit = 0 if run.absent else read(src), src.visit
    elif isinstance(src, (int, np.integer)) and not isinstance(src, bool):
        value, visit = int(src), 0
    else:
        raise NkiValidationError(f"register_move src must be an int or a VirtualRegister, got {src!r}")
    target.writer = run.tick
    run.issue("register_move", "sync", (), ())
    if run.absent:
        return
    target.value, target.visit = wrap(value), visit


def one_element(op: str, role: str, tensor: object) -> NkiTensor:
    """Check that an operand is a tensor of one element in SBUF or HBM."""
    if not isinstance(tensor, NkiTensor) or tensor.size != 1:
        actual = tensor.shape if isinstance(tensor, NkiTensor) else type(tensor).__name__
        raise NkiValidationError(f"{op} {role} must be a tensor of one element, got {actual}")
    if tensor.buffer.value == "psum":
        raise NkiValidationError(f"{op} {role} must be in ['sbuf', 'private_hbm', 'shared_hbm'], got psum")
    return tensor


def register_load(dst: VirtualRegister, src: NkiTensor) -> None:
    """Set the register ``dst`` to the integer in ``src``, a tensor of one element in HBM or SBUF."""
    run = machine.current()
    target, tensor = _writable(dst, "register_load"), one_element("register_load", "src", src)
    if not tensor.dtype.is_int:
        raise NkiValidationError(f"register_load src must be an integer tensor, got {tensor.dtype}")
    target.writer = run.tick
    known = run.issue("register_load", "sync", (), (tensor,))
    if run.absent:
        return
    if not known:
        raise NkiValidationError(
            f"register_load src `{tensor.name}` depends on floating-point data, which a trace does not compute"
        )
    target.value, target.visit = wrap(int(tensor.array().flat[0])), len(run.loop_path)


def register_store(dst: NkiTensor, src: VirtualRegister) -> None:
    """Write the register ``src`` to ``dst``, an integer tensor of one element in HBM or SBUF."""
    run = machine.current()
    tensor = one_element("register_store", "dst", dst)
    if not isinstance(src, VirtualRegister):
        raise NkiValidationError(f"register_store src must be a VirtualRegister, got {type(src).__name__}")
    if not tensor.dtype.is_int:
        raise NkiValidationError(f"register_store dst must be an integer tensor, got {tensor.dtype}")
    if run.issue("register_store", "sync", (tensor,), ()):
        tensor.array().flat[0] = np.int64(read(src)).astype(tensor.dtype.numpy)
