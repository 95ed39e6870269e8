"""Base of the classes that kernels may define."""

from __future__ import annotations

import inspect
from typing import Any


class NKIObject:
    """Base class of kernel-side classes, dataclasses among them; keyword arguments become attributes."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Plain defaults without annotations become the fields of a dataclass, as the kernel language reads them."""
        super().__init_subclass__(**kwargs)
        if not inspect.get_annotations(cls):
            plain = (type(None), bool, int, float, str)
            fields = {k: Any for k, v in vars(cls).items() if not k.startswith("__") and isinstance(v, plain)}
            if fields:
                cls.__annotations__ = fields

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)
