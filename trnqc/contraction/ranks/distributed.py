"""Run a planned distribution on the ranks of a device mesh, from blocks of operands to a DTensor.

    plan = einsum_plan("ab,bc,cd->ad", A, B, C, grid=(2, 2))
    mesh = init_device_mesh("cpu", (2, 2))
    result = run_distributed(plan, [A, B, C], mesh).tensor

Any backend of torch.distributed that sends tensors between ranks can be used (gloo, nccl).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from trnqc.contraction.distribute.distribution import TreeDistribution
from trnqc.contraction.plan import Plan
from trnqc.contraction.ranks.rank_run import Distributed, Operand, RankRun, dtensor_placements
from trnqc.errors import InputError, UnsupportedError

__all__ = ["Distributed", "dtensor_placements", "run_distributed"]


def run_distributed(
    plan: TreeDistribution | Plan, operands: Mapping[str, Operand] | Sequence[Operand], mesh: DeviceMesh
) -> Distributed:
    """Run a plan on the ranks of a mesh; every rank makes this call with the same plan and operands.

    Parameters
    ----------
    plan : Plan or TreeDistribution
        The plan of one product from `einsum_plan`, or the result of `distribution.distribute` for a tree. A plan
        without `grid` is distributed over the shape of the mesh.
    operands : mapping or sequence
        Operands by name, or in the order of the plan's inputs. Each is a whole tensor, of which a rank reads only its
        blocks, or a function that takes one slice per axis and returns that block.
    mesh : DeviceMesh
        Mesh of the shape of the plan's grid.

    Returns
    -------
    Distributed
        The result as a DTensor, and the number of elements that this rank received.

    Raises
    ------
    InputError
        For a mesh or an operand of the wrong shape, or missing operands.
    UnsupportedError
        For a plan of several products, over blocks, or with fused loops for a memory limit.
    CommunicationError
        If a rank is lost. The timeout of the process group determines how long to wait for a silent rank.
    """
    factor = Fraction(1)
    if isinstance(plan, Plan):
        operands = _named(plan, operands)
        plan, factor = _distribution(plan, tuple(mesh.shape))
    if not isinstance(operands, Mapping):
        raise InputError(f"operands of a distribution come by name; found {type(operands).__name__}")
    if tuple(mesh.shape) != plan.grid:
        raise InputError(f"the plan is for a grid {plan.grid}; the mesh has the shape {tuple(mesh.shape)}")
    for leaf in plan.tree.leaves:
        shape = tuple(plan.tree.extent(label) for label in leaf.indices)
        operand = operands.get(leaf.name)
        if operand is None or (isinstance(operand, Tensor) and tuple(operand.shape) != shape):
            actual = "nothing" if operand is None else tuple(operand.shape)
            raise InputError(f"operand {leaf.name} is a tensor of shape {shape} or a function; found {actual}")
    result = RankRun(plan, operands, mesh).result()
    if factor == 1:
        return result
    scaled = result.tensor * float(factor)
    assert isinstance(scaled, DTensor)
    return replace(result, tensor=scaled)


def _named(plan: Plan, operands: Mapping[str, Operand] | Sequence[Operand]) -> Mapping[str, Operand]:
    names = list(dict.fromkeys(name for name, _ in plan.inputs))
    if isinstance(operands, Mapping):
        return operands
    if len(operands) != len(plan.inputs):
        raise InputError(f"the plan takes {len(plan.inputs)} operands: {', '.join(names)}; found {len(operands)}")
    return {name: operand for (name, _), operand in zip(plan.inputs, operands)}


def _distribution(plan: Plan, grid: tuple[int, ...]) -> tuple[TreeDistribution, Fraction]:
    """Return the distribution of the single product of the plan, and its factor."""
    parts = [part for assignment in plan.assignments for part in assignment.parts]
    functions = [assignment.function for assignment in plan.assignments if assignment.function]
    if len(parts) != 1 or plan.blocked or plan.assignments[0].accumulate or functions:
        what = "blocks" if plan.blocked else f"the function {functions[0]}" if functions else f"{len(parts)} products"
        raise UnsupportedError(
            f"one product of whole tensors is distributed at once; this plan has {what}: take "
            "trnqc.contraction.ranks.program.over_ranks"
        )
    if parts[0].schedule:
        raise UnsupportedError(
            "distributed steps keep no memory limit; make the plan without memory_limit, or take "
            "trnqc.contraction.ranks.program.over_ranks"
        )
    (distribution,) = (plan if plan.grid else replace(plan, grid=grid)).distributions
    return distribution, parts[0].coefficient
