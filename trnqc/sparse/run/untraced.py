"""Calls inside ``torch.compile``: plans depend on the stored elements, so that Dynamo breaks the graph at the call.

This module is imported only if Dynamo is already loaded, because importing Dynamo takes longer than most networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _called(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function that Dynamo must not trace."""
    return function(*arguments, **options)


untraced = torch.compiler.disable(_called)
