"""Base of the classes that kernels may define."""

from __future__ import annotations

from typing import Any


class NKIObject:
    """Base class of kernel-side classes, dataclasses among them; keyword arguments become attributes."""

    __slots__ = ()

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)
