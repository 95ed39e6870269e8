"""The module ``nki.typing``: kernel arguments are annotated with, for example, ``tensor[128, 512]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorAnnotation:
    """Expected shape of a tensor argument. Each entry is a size or a name."""

    shape: tuple[Any, ...]


class tensor:
    """``tensor[shape]`` annotates a tensor argument."""

    def __class_getitem__(cls, shape: Any) -> TensorAnnotation:
        return TensorAnnotation(shape if isinstance(shape, tuple) else (shape,))
