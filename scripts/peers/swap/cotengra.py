"""A pytest plugin that puts `trnqc.einsum` in the place of cotengra's `einsum` and `array_contract`.

Left as they are: calls with ``strip_exponent=True``, whose result is a pair of mantissa and exponent that trnqc.einsum
does not have, and the functions that make trees, paths and expressions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import cotengra

import trnqc

_counts = {"ours": 0, "reference": 0}


def _swapped(reference: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, strip_exponent: bool = False, **options: Any) -> Any:
        _counts["reference" if strip_exponent else "ours"] += 1
        # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
        os.environ["PEERS_SWAPPED"] = json.dumps(_counts)
        if strip_exponent:
            return reference(*arguments, strip_exponent=True, **options)
        return ours(*arguments, **options)

    return call


def _array_contract(
    arrays: Sequence[Any],
    inputs: Sequence[Sequence[Any]],
    output: Sequence[Any] | None = None,
    optimize: Any = "auto",
    size_dict: object = None,
) -> Any:
    """The interleaved form; extents are those of the arrays."""
    terms = [x for array, labels in zip(arrays, inputs, strict=True) for x in (array, list(labels))]
    return trnqc.einsum(*terms, *([] if output is None else [list(output)]), optimize=optimize)


def pytest_configure() -> None:
    cotengra.einsum = _swapped(cotengra.einsum, trnqc.einsum)
    cotengra.array_contract = _swapped(cotengra.array_contract, _array_contract)
