"""Base class of the classes that kernels define."""

from __future__ import annotations

import inspect
from typing import Any


class NKIObject:
    """Base class of kernel-side classes, including dataclasses; keyword arguments become attributes."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Annotate plain class attributes, so that a dataclass takes them as fields, as the kernel language does."""
        super().__init_subclass__(**kwargs)
        if not inspect.get_annotations(cls):
            plain = (type(None), bool, int, float, str)
            fields = {k: Any for k, v in vars(cls).items() if not k.startswith("__") and isinstance(v, plain)}
            if fields:
                cls.__annotations__ = fields

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)
