"""The tensor products of e3nn whose paths follow from their irreps, with e3nn's arguments, outputs and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

from torch import Tensor

from trnqc.cg.problem.irreps import Irrep, Irreps, MulIrrep, products
from trnqc.cg.torch.modules import TensorProduct
from trnqc.errors import InputError, IrrepsError

Rules = list[tuple[Any, ...]]


class FullyConnectedTensorProduct(TensorProduct):
    """Tensor product of all paths that the selection rules allow, each of mode uvw with weights.

    Parameters
    ----------
    irreps_in1, irreps_in2, irreps_out
        Irreps, as `TPProblem` takes them.
    irrep_normalization, path_normalization, **options
        Passed to `TPProblem`. Weights are internal by default.
    """

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        irreps_out: Any,
        irrep_normalization: str | None = None,
        path_normalization: str | None = None,
        **options: Any,
    ) -> None:
        one, two, three = map(Irreps.of, (irreps_in1, irreps_in2, irreps_out))
        rules = [
            (i, j, k, "uvw", True)
            for i, x in enumerate(one)
            for j, y in enumerate(two)
            for k, z in enumerate(three)
            if z.ir in products(x.ir, y.ir)
        ]
        by: dict[str, Any] = {"irrep_normalization": irrep_normalization, "path_normalization": path_normalization}
        super().__init__(one, two, three, rules, **by, **options)


class FullTensorProduct(TensorProduct):
    """Products of each channel of x with each channel of y, decomposed into irreps, without weights.

    Parameters
    ----------
    irreps_in1, irreps_in2
        Irreps, as `TPProblem` takes them. Neighbouring slots of the same irrep are joined.
    filter_ir_out : iterable of irreps, optional
        Irreps to keep in the output, by default all.
    irrep_normalization, **options
        Passed to `TPProblem`.
    """

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        filter_ir_out: Iterable[Any] | None = None,
        irrep_normalization: str | None = None,
        **options: Any,
    ) -> None:
        one, two, wanted = Irreps.of(irreps_in1).simplify(), Irreps.of(irreps_in2).simplify(), _filter(filter_ir_out)
        parts = [
            (MulIrrep(x.mul * y.mul, ir), (i, j), ("uvuv", False))
            for i, x in enumerate(one)
            for j, y in enumerate(two)
            for ir in products(x.ir, y.ir)
            if wanted is None or ir in wanted
        ]
        out, rules = _sorted(parts)
        super().__init__(one, two, out, rules, irrep_normalization=irrep_normalization, **options)


class ElementwiseTensorProduct(TensorProduct):
    """Products of equal channels of x and y, decomposed into irreps, without weights.

    Parameters
    ----------
    irreps_in1, irreps_in2
        Irreps, as `TPProblem` takes them, with the same total number of channels.
    filter_ir_out, irrep_normalization, **options
        As in `FullTensorProduct`.

    Raises
    ------
    InputError
        If the numbers of channels differ.
    """

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        filter_ir_out: Iterable[Any] | None = None,
        irrep_normalization: str | None = None,
        **options: Any,
    ) -> None:
        one, two = _aligned(Irreps.of(irreps_in1).simplify(), Irreps.of(irreps_in2).simplify())
        wanted = _filter(filter_ir_out)
        out = [
            (n, MulIrrep(x.mul, ir))
            for n, (x, y) in enumerate(zip(one, two))
            for ir in products(x.ir, y.ir)
            if wanted is None or ir in wanted
        ]
        rules = [(n, n, k, "uuu", False) for k, (n, _) in enumerate(out)]
        super().__init__(
            one, two, Irreps(tuple(slot for _, slot in out)), rules, irrep_normalization=irrep_normalization, **options
        )


class TensorSquare(TensorProduct):
    """Tensor product of x with itself, without the parts that vanish or occur twice.

    Parameters
    ----------
    irreps_in
        Irreps, as `TPProblem` takes them. Neighbouring slots of the same irrep are joined.
    irreps_out : optional
        Irreps of the output. If present, all paths to them are used, with weights; by default each part of the product
        is returned separately, without weights.
    filter_ir_out : iterable of irreps, optional
        Irreps to keep in the output, by default all. Not allowed together with `irreps_out`.
    irrep_normalization : {"component", "norm", "none"}
        Normalization of x and of the result.
    **options
        Passed to `TPProblem`.

    Raises
    ------
    InputError
        If both `irreps_out` and `filter_ir_out` are passed, or for an unknown normalization.
    """

    def __init__(
        self,
        irreps_in: Any,
        irreps_out: Any = None,
        filter_ir_out: Iterable[Any] | None = None,
        irrep_normalization: str | None = None,
        **options: Any,
    ) -> None:
        by, x = irrep_normalization or "component", Irreps.of(irreps_in).simplify()
        if irreps_out is not None and filter_ir_out is not None:
            raise InputError("expected irreps_out or filter_ir_out, found both")
        if by not in ("component", "norm", "none"):
            raise InputError(f"irrep_normalization: expected component, norm or none; found {by!r}")
        if irreps_out is None:
            wanted = _filter(filter_ir_out)
            parts = [part for part in _square(x, by) if wanted is None or part[0].ir in wanted]
            out, rules = _sorted([(slot, pair, (mode, False, scale)) for slot, pair, mode, scale in parts])
        else:
            out = Irreps.of(irreps_out).simplify()
            mixing = {"uvuv": "uvw", "uvu<v": "u<vw", "uuu": "uuw"}
            grouped = [(pair, list(parts)) for pair, parts in groupby(_square(x, by), lambda part: part[1])]
            rules = [
                (*pair, k, mixing[mode], True, scale)
                for pair, parts in grouped
                for k, z in enumerate(out)
                for slot, _, mode, scale in parts
                if z.ir == slot.ir
            ]
        self.irreps_in = x
        super().__init__(x, x, out, rules, irrep_normalization="none", **options)

    def forward(self, x: Tensor, weight: Any = None) -> Tensor:  # type: ignore[override]
        """Return z [..., d3] for x [..., d1]; see `TensorProduct.forward`."""
        return super().forward(x, x, weight)


def _square(x: Irreps, by: str) -> Iterator[tuple[MulIrrep, tuple[int, int], str, float]]:
    """Yield (slot of z, slots of x, mode, path weight) for each part of the product of x with itself."""
    for i, one in enumerate(x):
        for j in range(i, len(x)):
            for ir in products(one.ir, x[j].ir):
                norm = {"component": ir.dim, "norm": one.ir.dim * x[j].ir.dim, "none": 1}[by]
                if i < j:
                    yield MulIrrep(one.mul * x[j].mul, ir), (i, j), "uvuv", norm
                    continue
                if one.mul > 1:
                    yield MulIrrep(one.mul * (one.mul - 1) // 2, ir), (i, i), "uvu<v", norm
                # The product of a channel with itself has components of even degree only.
                if ir.l % 2 == 0:
                    yield MulIrrep(one.mul, ir), (i, i), "uuu", _of_itself(one.ir.dim, ir, by)


def _of_itself(dim: int, ir: Irrep, by: str) -> float:
    """Return the path weight of the product of a channel with itself, whose components are not independent."""
    if by == "none":
        return 1.0
    if by == "component":
        return ir.dim / (dim + 2) if ir.l == 0 else ir.dim / 2
    return float(ir.dim * dim) if ir.l == 0 else dim * (dim + 2) / 2


def _sorted(parts: list[tuple[MulIrrep, tuple[int, int], tuple[Any, ...]]]) -> tuple[Irreps, Rules]:
    """Return the slots sorted by irrep, and an instruction for each part in the original order."""
    order = sorted(range(len(parts)), key=lambda n: (parts[n][0].ir, n))
    place = {n: k for k, n in enumerate(order)}
    rules = [(*pair, place[n], *rest) for n, (_, pair, rest) in enumerate(parts)]
    return Irreps(tuple(parts[n][0] for n in order)), rules


def _aligned(one: Irreps, two: Irreps) -> tuple[Irreps, Irreps]:
    """Split the slots of both so that they end at the same channels."""
    first, second = (sum(slot.mul for slot in irreps) for irreps in (one, two))
    if first != second:
        raise InputError(f"expected as many channels on both sides, found {first} in {one} and {second} in {two}")
    ends = sorted({end for irreps in (one, two) for end in _ends(irreps)})
    return _cut(one, ends), _cut(two, ends)


def _ends(irreps: Irreps) -> list[int]:
    ends = [0]
    for slot in irreps:
        ends.append(ends[-1] + slot.mul)
    return ends


def _cut(irreps: Irreps, ends: list[int]) -> Irreps:
    slots = []
    for slot, first, last in zip(irreps, _ends(irreps), _ends(irreps)[1:], strict=False):
        inside = [end for end in ends if first <= end <= last]
        slots += [MulIrrep(b - a, slot.ir) for a, b in pairwise(inside)]
    return Irreps(tuple(slots))


def _filter(wanted: Iterable[Any] | None) -> list[Irrep] | None:
    if wanted is None:
        return None
    try:
        return [slot.ir for item in wanted for slot in Irreps.of(item)]
    except (IrrepsError, TypeError) as error:
        raise IrrepsError(f"filter_ir_out: expected irreps, found {wanted!r}: {error}") from error
