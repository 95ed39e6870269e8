"""Import of optional packages, with one error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from trnqc.errors import BackendUnavailable

# The extra of trnqc (`pip install trnqc[EXTRA]`) that installs each optional package.
EXTRAS = {
    "ase": "ase",
    "qcelemental": "qcschema",
    "qcengine": "qcschema",
    "geometric": "optimize",
    "opt_einsum": "test",
}


def optional(module: str) -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module
        Full name of the module, whose package is one of EXTRAS.

    Raises
    ------
    BackendUnavailable
        If the package cannot be imported. The message names the package and the extra that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendUnavailable(
            f"the Python package {package!r} is needed and cannot be imported ({error}): "
            f"pip install 'trnqc[{EXTRAS[package]}]'"
        ) from error
