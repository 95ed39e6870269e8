"""Exception classes, one for each kind of failure, so that callers need not read messages to tell them apart.

Every message says what was expected, what was found and, where it helps, what to do.
"""

from __future__ import annotations


class TrnqcError(Exception):
    """Base of all errors that trnqc raises on purpose."""


class InputError(TrnqcError, ValueError):
    """The input is wrong: a file, an option, or the shape, dtype or value of an array."""


class ArgumentError(InputError, TypeError):
    """An argument has the wrong type, or the function has no argument of that name."""


class NotPositiveDefinite(InputError):
    """A matrix that has to be factorised is not positive definite.

    Attributes
    ----------
    minor
        The order of the first leading minor that is not positive.
    """

    def __init__(self, minor: int, n: int) -> None:
        super().__init__(
            f"a is not positive definite: its leading minor of order {minor}, of {n}, is not positive. If it should "
            "be, add a small multiple of the identity, or take a higher precision"
        )
        self.minor = minor


class MoleculeError(InputError):
    """The geometry, elements, basis set, charge and spin do not define a molecule."""


class ExpressionError(InputError):
    """A tensor expression is invalid. If it was written as text, the message points at the index or tensor.

    Attributes
    ----------
    axis
        Position of the wrong index in its factor; None if the error concerns the whole factor or expression.
    """

    def __init__(self, message: str, axis: int | None = None) -> None:
        super().__init__(message)
        self.axis = axis


class IrrepsError(InputError):
    """The argument does not describe irreducible representations, or their degrees do not couple."""


class InstructionError(InputError):
    """A path of a tensor product cannot connect its slots; the message names the path and both sides."""


class OperandError(InputError):
    """An operand has the wrong shape, dtype, layout or device; the message names what was expected and found."""


class TensorFileError(InputError):
    """A line of a tensor file is not a valid element; the message names the file and the line."""


class EdgeIndexError(InputError):
    """Senders and receivers do not define edges: they are not int64, differ in length, or are out of range."""


class UnsupportedError(TrnqcError):
    """The request is valid, but trnqc does not support it; the message says what it supports instead."""


class UnsupportedPrecision(UnsupportedError):
    """The backend does not have the requested precision."""


class UnsupportedClass(UnsupportedError):
    """No kernel is generated for integrals over these shells or with this operator."""


class UnsupportedMode(UnsupportedError):
    """No kernel is generated for this connection mode of a tensor product; the message lists the supported modes."""


class PackageTooOld(UnsupportedError, ImportError):
    """An installed package is older than trnqc needs; the message gives both versions and what to do.

    Attributes
    ----------
    name
        The package.
    """

    def __init__(self, name: str, found: str, needed: str, reason: str) -> None:
        super().__init__(f"{name} {found} is too old: {needed} or newer is needed {reason}")
        self.name = name


class BackendUnavailable(TrnqcError, RuntimeError):
    """A backend that was requested by name cannot run here; the message says why and what to install."""


class PrecisionError(TrnqcError, ArithmeticError):
    """A result is less accurate than its precision promises; the message gives both errors and what to use instead."""


class NotConverged(TrnqcError, RuntimeError):
    """An iterative method stopped before reaching its threshold."""


class MemoryLimit(TrnqcError, MemoryError):
    """The job needs more memory than the limit allows; the message gives both figures."""


class SlowPlanWarning(UserWarning):
    """A memory limit makes a contraction many times slower; the message gives the factor."""


class CheckpointError(InputError):
    """The checkpoint belongs to another job or version, or another process uses it; the message says which."""


class StorageError(TrnqcError, OSError):
    """A file could not be written, or its contents have changed since it was written."""


class CommunicationError(TrnqcError, RuntimeError):
    """A process of a distributed run cannot be reached; the message names the failed step and a remedy."""


class CompilerError(TrnqcError, RuntimeError):
    """There is no usable compiler, or it failed; the message holds the command and its output."""


class ProgramError(TrnqcError):
    """A generated program breaks a rule about types, names, indices or lanes; the message names both sides."""


class SimulationError(TrnqcError):
    """A kernel breaks a rule of the simulated machine; the message names operand, rule, actual and allowed value."""
