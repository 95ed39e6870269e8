"""What mace-torch's tests find beside themselves: they train their models by a script of the source tree.

The plugin gives them the same script of the installed package, which is the one that is tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mace.cli


def pytest_collection_modifyitems(items: list[Any]) -> None:
    script = Path(next(iter(mace.cli.__path__))) / "run_train.py"
    for module in {item.module for item in items}:
        module.run_train = script
