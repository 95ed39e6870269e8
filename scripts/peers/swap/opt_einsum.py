"""A pytest plugin that puts `trnqc.einsum` in the place of `opt_einsum.contract`, for opt_einsum's own tests.

Left as they are: calls with ``optimize=False``, which are the reference of these tests and run through NumPy;
`contract_path` and `contract_expression`, whose objects trnqc has its own plans for. Of the options that say how
opt_einsum executes, ``use_blas`` is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import opt_einsum

import trnqc

_counts = {"ours": 0, "reference": 0}


def _contracting(reference: Callable[..., Any]) -> Callable[..., Any]:
    def contract(*operands: Any, use_blas: bool = True, **options: Any) -> Any:
        plain = options.get("optimize", True) is False
        _counts["reference" if plain else "ours"] += 1
        # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
        os.environ["PEERS_SWAPPED"] = json.dumps(_counts)
        if plain:
            return reference(*operands, use_blas=use_blas, **options)
        return trnqc.einsum(*operands, **options)

    return contract


def pytest_configure() -> None:
    opt_einsum.contract = _contracting(opt_einsum.contract)
