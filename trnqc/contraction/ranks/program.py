"""A program of contractions on the ranks of a job.

    with started("cpu") as ranks:                  # trnqc.ranks.transport
        shared = over_ranks(einsum_plan(text, arrays, memory_limit=10**9), ranks)
        outputs = shared.run(arrays)               # as often as you like; the same on all ranks

Every rank has all operands, and gets all outputs with the same bits. This needs no PyTorch by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trnqc.contraction.computation import Part, SumAssignment
from trnqc.contraction.cost.rates import machine_rates
from trnqc.contraction.plan import Plan
from trnqc.contraction.products.arrays import library_of
from trnqc.contraction.ranks.agreement import measured_link, require_same_operands, require_same_program
from trnqc.contraction.ranks.shared_run import SharedRun
from trnqc.contraction.run.operands import checked_function, checked_operands, identities, named_operands
from trnqc.contraction.shares.division import FP64, Division
from trnqc.contraction.shares.local_parts import LocalPart, local_part, within
from trnqc.contraction.shares.search import divide
from trnqc.errors import InputError, UnsupportedError
from trnqc.ranks import Ranks


def over_ranks(plan: Plan, ranks: Ranks) -> SharedProgram:
    """Return a program that the ranks of a job compute together; all ranks make this call with the same program.

    Rank 0 divides it by the rates of its products and of messages, which it measures, and all ranks follow its plan.

    Parameters
    ----------
    plan : Plan
        The plan of a program or a product, from `einsum_plan`. Its `memory_limit` is that of each rank.
    ranks : Ranks
        The ranks of the job, from `trnqc.ranks.transport.started`, or `trnqc.ranks.ALONE`.

    Returns
    -------
    SharedProgram

    Raises
    ------
    InputError
        If a rank has another program, other shapes, outputs or limit, or another version of trnqc than rank 0, or if
        the plan has a grid of another number of processors.
    CommunicationError
        If a rank is lost.
    """
    ranks.at("plan")
    if plan.grid and int(np.prod(plan.grid)) != ranks.size:
        raise InputError(f"the plan is for a grid {plan.grid} of processors; there are {ranks.size} ranks")
    require_same_program(plan, ranks)
    link = measured_link(ranks)
    limit = None if plan.memory is None else int(plan.memory) // FP64

    def planned() -> tuple[Any, Division]:
        # What is found within a time limit may differ between ranks, so that all take the plan of rank 0.
        return plan.assignments, divide(plan, ranks.size, machine_rates(), link, limit)

    assignments, division = ranks.at_first(planned)
    return SharedProgram(plan, division, ranks, assignments, limit)


class SharedProgram:
    """A program that ranks compute together; `over_ranks` makes it. Printing it shows what is divided and sent.

    Attributes
    ----------
    division : Division
        The label over which each part is divided, and what all ranks together receive.
    received : int
        Bytes of array elements that this rank received in the last run.
    """

    def __init__(
        self, plan: Plan, division: Division, ranks: Ranks, assignments: tuple[SumAssignment, ...], limit: int | None
    ) -> None:
        self.plan, self.division, self.ranks, self.assignments = plan, division, ranks, assignments
        self.received = 0
        self._parts = [
            [self._local(p, label, *held, limit) for p, label, held in zip(a.parts, step.labels, step.held)]
            for a, step in zip(assignments, division.steps)
        ]

    def _local(self, part: Part, label: str | None, held: int, is_output: bool, limit: int | None) -> LocalPart:
        local = local_part(part, label, self.ranks.size, self.ranks.rank)
        return local if limit is None else replace(local, part=within(local.part, label, is_output, held, limit))

    def __str__(self) -> str:
        return self.division.text(self.plan)

    def run(self, *operands: Any, check_finite: bool = True, **named: Any) -> Any:
        """Compute the outputs; all ranks make this call with the same operands.

        Parameters
        ----------
        *operands, **named
            NumPy arrays, or functions of one slice for each axis, as of `Plan.run`.
        check_finite : bool
            As of `Plan.run`. Also compares types and some elements of the operands between ranks.

        Returns
        -------
        array or dict
            The array of a single output, else a dictionary by name, with the same bits on all ranks.

        Raises
        ------
        InputError
            If operands are refused, or differ between ranks.
        UnsupportedError
            If operands are no NumPy arrays.
        CommunicationError
            If a rank is lost.
        """
        plan = self.plan
        if self.ranks.size == 1:
            return plan.run(*operands, check_finite=check_finite, **named)
        self.ranks.at("operands")
        values = checked_operands(plan, named_operands(plan.inputs, operands, named), check_finite)
        if library_of([x for x in values.values() if not callable(x)]) is not np:
            raise UnsupportedError("ranks share programs of NumPy arrays; convert the operands with numpy.asarray")
        if check_finite:
            require_same_operands(values, self.ranks)
        values = {k: checked_function(k, x, check_finite) if callable(x) else x for k, x in values.items()}
        run = SharedRun(self.assignments, self.division, self._parts, self.ranks, plan.kernels.gemm)
        like = next((x for x in values.values() if not callable(x)), np.zeros(1))
        if plan.blocked:
            values = {k: x for name, whole in values.items() for k, x in plan.blocked.inputs[name].split(whole).items()}
        results = run.results(values | identities(plan, np, like), plan.kept)
        self.received = run.exchange.received
        if plan.blocked:
            results = {name: plan.blocked.targets[name].join(np, results, like) for name in plan.outputs}
        return results[plan.outputs[0]] if len(plan.outputs) == 1 else {name: results[name] for name in plan.outputs}
