"""Plans: a computation that can be printed, timed and run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from trnqc.contraction.bound import BoundPlan, bound_operands
from trnqc.contraction.computation import Computation
from trnqc.contraction.cost.rates import machine_rates
from trnqc.contraction.estimate import plan_seconds, slowdown
from trnqc.contraction.kernels import Gemm
from trnqc.contraction.report import export, listing
from trnqc.contraction.run.dispatch import run_computation
from trnqc.contraction.run.operands import named_operands
from trnqc.contraction.slow_plans import check_slowdown, least_bytes
from trnqc.contraction.tape.instructions import Tape, tape_of


class Plan(Computation):
    """How an expression is computed. Printing a plan shows its steps, counts, memory and estimated time.

    Examples
    --------
    >>> import numpy as np
    >>> from trnqc import einsum_plan
    >>> plan = einsum_plan("ab,bc,cd->ad", (2, 30), (30, 4), (4, 30))
    >>> plan.multiply_adds, plan.peak_bytes
    (480, 64)
    >>> plan.run(np.ones((2, 30)), np.ones((30, 4)), np.ones((4, 30))).shape
    (2, 30)
    """

    def run(self, *operands: Any, gemm: Gemm | None = None, check_finite: bool = True, **named: Any) -> Any:
        """Compute the outputs.

        Parameters
        ----------
        *operands
            The operands one by one in the order of `inputs`, or one mapping from names to operands. Operands are arrays
            of one library, or functions that take one slice for each axis and return that block.
        gemm : callable, optional
            A product of stacked matrices, ``gemm(a_t[Z, K, M], b[Z, K, N]) -> [Z, M, N]``, in place of that of the
            plan's kernels. Pair energies then run step by step.
        check_finite : bool
            Whether to refuse operands that hold nan or inf, divide by zero, or lack their declared symmetry.
        **named
            The operands by name: ``plan.run(t=t, v=v)``.

        Returns
        -------
        array or dict
            The array of a single output, else a dictionary by name. Arrays may be views with transposed axes.

        Raises
        ------
        InputError
            If an operand is missing, has another shape than in the plan, or fails the checks.
        UnsupportedError
            If fused loops would lose a derivative of a PyTorch tensor.
        """
        return run_computation(self, named_operands(self.inputs, operands, named), gemm, check_finite, self.tape)

    def bind(self, *operands: Any, check_finite: bool = True, **named: Any) -> BoundPlan:
        """Return the plan with some inputs bound, after computing what depends on these alone, as for iterations.

        Parameters
        ----------
        *operands, **named
            Operands by name, ``plan.bind(t=t, g=g)``, or as one mapping. They are not copied: they must not be changed
            afterwards.
        check_finite : bool
            As of `run`, for these operands, which later runs do not check again.

        Returns
        -------
        BoundPlan
            Its ``run(x=x)`` takes the other operands. Printing it shows what was computed once.

        Raises
        ------
        InputError
            If an operand is unknown, is given twice, or is refused.
        MemoryLimit
            If what is kept and the temporaries of a run together exceed the memory limit of the plan.

        Examples
        --------
        >>> import numpy as np
        >>> from trnqc import einsum_plan
        >>> bound = einsum_plan("ab,bc,cd->ad", (9, 9), (9, 9), (9, 20)).bind(A=np.ones((9, 9)), B=np.ones((9, 9)))
        >>> bound.multiply_adds_once, bound.multiply_adds
        (729, 1620)
        >>> bound.run(C=np.ones((9, 20))).shape
        (9, 20)
        """
        return BoundPlan(self, bound_operands([name for name, _ in self.inputs], operands, named), check_finite)

    @cached_property
    def tape(self) -> Tape | None:
        """The steps as instructions of one compiled function, if they are many and small; it runs arrays of float64."""
        return tape_of(self)

    @property
    def peak_bytes(self) -> int:
        """`peak` in bytes, for elements in fp64."""
        return self.peak * listing.BYTES

    @cached_property
    def seconds(self) -> float:
        """Estimated time of a run with NumPy, from the measured rates of this machine."""
        return plan_seconds(self, machine_rates())

    @cached_property
    def slowdown(self) -> float:
        """Estimated time relative to a run without a memory limit; 1.0 if the limit changes nothing."""
        return slowdown(self, machine_rates())

    def check_slowdown(
        self, allowed: float | None, replanned: Callable[[int | None], Plan], itemsize: int, stacklevel: int
    ) -> None:
        """Issue a SlowPlanWarning, or raise MemoryLimit, if the memory limit makes a run slow (`slow_plans`).

        `replanned` makes the plan for another limit; elements have `itemsize` bytes. `stacklevel` is that of
        ``warnings.warn``; 2 stands for the caller of this method.
        """
        if self.memory is None:
            return
        limit = int(self.memory)

        def sufficient(target: float) -> int:
            return least_bytes(lambda x: replanned(x).slowdown, limit, replanned(None).peak * itemsize, target)

        check_slowdown("this contraction", self.memory, self.slowdown, allowed, sufficient, stacklevel + 1)

    def __str__(self) -> str:
        return listing.text(self, self.seconds, self.slowdown)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in JSON's types: lists, dictionaries, strings and numbers."""
        return export.data(self, self.seconds, self.slowdown)
