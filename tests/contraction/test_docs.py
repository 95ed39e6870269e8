"""The Python of docs/contraction.md runs and shows what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "contraction.md"


@pytest.mark.filterwarnings("ignore::trnqc.errors.SlowPlanWarning")
def test_python_blocks_run(capsys):
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
        if "S" in names and "checked" not in names:
            operands = [names[x] for x in "ABCD"]
            expected = np.einsum("acik,befl,dfjk,cdel->abij", *operands, optimize=True)
            np.testing.assert_allclose(names["S"], expected, rtol=1e-12)
            assert names["plan"].multiply_adds == 3_000_000
            names["checked"] = True
    assert names["checked"] and names["plan"].outputs == ("N",)
    assert "6 N^6 = 6e+06" in capsys.readouterr().out
