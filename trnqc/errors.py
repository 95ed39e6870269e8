"""What goes wrong, one class a kind, so that callers can tell kinds apart without reading messages.

Every message names what was expected, what was found and, where it helps, what to do.
"""

from __future__ import annotations


class TrnqcError(Exception):
    """Base of all errors that trnqc raises on purpose."""


class InputError(TrnqcError, ValueError):
    """The user's input is wrong: a file, an option, an array's shape, dtype or value."""


class ArgumentError(InputError, TypeError):
    """An argument of a type that the function does not take, or of a name that it does not have."""


class MoleculeError(InputError):
    """A geometry, element, basis set, charge or spin that makes no molecule."""


class ExpressionError(InputError):
    """A tensor expression that means nothing; where it came as text, the message points at the index or tensor.

    axis: number of the index at fault in its factor; None when it is the factor or the whole.
    """

    def __init__(self, message: str, axis: int | None = None) -> None:
        super().__init__(message)
        self.axis = axis


class IrrepsError(InputError):
    """Text or an object that means no irreducible representations, or degrees that do not couple."""


class InstructionError(InputError):
    """A path of a tensor product between slots that it cannot join; the message names the path and both sides."""


class OperandError(InputError):
    """An operand of a tensor product or network of the wrong shape, dtype, layout or device; both sides are named."""


class TensorFileError(InputError):
    """A line of a tensor's file that is no element of it; the message names the file and the line."""


class EdgeIndexError(InputError):
    """Senders or receivers that are no edges of the graph: not int64, of unequal length, or out of range."""


class UnsupportedError(TrnqcError):
    """The request is sound but not something trnqc does; the message says what it does instead."""


class UnsupportedPrecision(UnsupportedError):
    """A backend was asked for a precision that it does not have."""


class UnsupportedClass(UnsupportedError):
    """Integrals over shells, or with an operator, for which no kernel is generated."""


class UnsupportedMode(UnsupportedError):
    """A connection mode of tensor products for which no kernel is generated; the message lists those that there are."""


class BackendUnavailable(TrnqcError, RuntimeError):
    """A backend was asked for by name and cannot run here; the message says why and what to install."""


class NotConverged(TrnqcError, RuntimeError):
    """An iterative method stopped before reaching its threshold."""


class MemoryLimit(TrnqcError, MemoryError):
    """The job needs more memory than it was allowed; the message gives both figures."""


class SlowPlanWarning(UserWarning):
    """A memory limit makes a contraction many times slower than it is without; the message gives the factor."""


class CheckpointError(InputError):
    """A directory of another job, of another version, or held by another process; the message says which."""


class StorageError(TrnqcError, OSError):
    """A file that could not be written, or that no longer holds what was written to it."""


class CommunicationError(TrnqcError, RuntimeError):
    """A process of a distributed run cannot be reached; the message says which step failed and what to do."""


class CompilerError(TrnqcError, RuntimeError):
    """No usable compiler, or a compiler that failed; the message holds the command and its output."""


class ProgramError(TrnqcError):
    """A generated program breaks a rule of its language: a type, a name, an index, a lane; both sides are named."""


class SimulationError(TrnqcError):
    """A kernel breaks a rule of the simulated machine; the message gives operand, rule, found and allowed."""
