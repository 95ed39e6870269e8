"""The Python blocks of docs/contraction.md run and give the numbers that the page states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trnqc.errors import SlowPlanWarning

PAGE = Path(__file__).parents[2] / "docs" / "contraction.md"


def test_python_blocks_run(capsys):
    with pytest.warns(SlowPlanWarning, match="of arrays on disk"):
        names = run_blocks()
    assert names["checked"] and names["plan"].outputs == ("N",)
    assert "6 N^6 = 6e+06" in capsys.readouterr().out


def run_blocks() -> dict[str, Any]:
    """Run the blocks of the page in order, and check the first result; returns their variables."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
        if "S" in names and "checked" not in names:
            operands = [names[x] for x in "ABCD"]
            expected = np.einsum("acik,befl,dfjk,cdel->abij", *operands, optimize=True)
            np.testing.assert_allclose(names["S"], expected, rtol=1e-12)
            assert names["plan"].multiply_adds == 3_000_000
            names["checked"] = True
    return names
