"""``nki.typing``: ``tensor[128, 512]`` as the annotation of kernel arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorAnnotation:
    """Expected shape of a tensor argument; entries are sizes or names."""

    shape: tuple[Any, ...]


class tensor:
    """``tensor[shape]`` annotates a tensor argument."""

    def __class_getitem__(cls, shape: Any) -> TensorAnnotation:
        return TensorAnnotation(shape if isinstance(shape, tuple) else (shape,))
