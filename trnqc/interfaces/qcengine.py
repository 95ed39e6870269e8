"""DF-MP2 as a program of QCEngine.

>>> import qcengine
>>> import trnqc
>>> trnqc.qcengine.register()
>>> "trnqc" in qcengine.list_available_programs()
True
"""

from __future__ import annotations

from typing import Any, ClassVar

from trnqc.interfaces import qcschema
from trnqc.interfaces.packages import optional
from trnqc.version import __version__

# Bytes in the unit of memory of QCEngine, GiB.
GIB = 2.0**30


class TrnqcHarness(optional("qcengine.programs.model").ProgramHarness):  # type: ignore[misc]
    """Runs inputs that name the program "trnqc"; threads and memory are those of QCEngine's task."""

    _defaults: ClassVar[dict[str, Any]] = {
        "name": "trnqc",
        "scratch": False,
        "thread_safe": False,
        "thread_parallel": True,
        "node_parallel": False,
        "managed_memory": True,
    }

    @staticmethod
    def found(raise_error: bool = False) -> bool:
        """Whether the program is installed, which it is."""
        return True

    def get_version(self) -> str:
        """The version of trnqc."""
        return __version__

    def compute(self, input_data: Any, config: Any) -> Any:
        """Run an AtomicInput of version 2."""
        return qcschema.run(input_data, threads=config.ncores, memory=config.memory * GIB)


def register() -> None:
    """Make the program "trnqc" known to QCEngine in this process; a second call has no effect."""
    base = optional("qcengine.programs.base")
    if "trnqc" not in base.programs:
        base.register_program(TrnqcHarness())
