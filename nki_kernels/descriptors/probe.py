"""Descriptor of `nki_kernels.precision.probe`, which has no knobs."""

from __future__ import annotations

import numpy as np

from nki_kernels.descriptors.descriptor import PARTS, Fill, Launch, NkiKernel, P, Values, ceil, operand_dtype
from nki_kernels.precision.probe import probe, reference_probe


def _launch(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    rows = P * ceil(shape["K"], P)
    a, b = (fill((PARTS[precision], rows, P), operand_dtype(precision)) for _ in range(2))
    return Launch((a, b, fill((P, P), np.dtype(np.float32))), {}, 2.0 * rows * P * P)


KERNEL = NkiKernel(
    name="probe",
    function=probe,
    reference=reference_probe,
    small={"K": 256},
    contracted="K",
    workload="products, sums over K and a transpose",
    example=_launch,
    gate=_launch,
)
