"""All cases by name, in the order in which they are measured and shown."""

from __future__ import annotations

from trnqc.bench import chemistry, products, tensors
from trnqc.bench.case import Case

CASES: dict[str, Case] = {case.name: case for case in (*chemistry.CASES, *products.CASES, *tensors.CASES)}
