"""Launches whose arguments are converted once, and which are then queued as often as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trnqc.jit.device import Argument, BuiltKernel, ExternalStream


@dataclass(frozen=True, eq=False)
class PreparedLaunch:
    """A launch of the groups 0 .. groups - 1 of a kernel; see `Device.launch`. Prepared ones have own streams."""

    built: BuiltKernel
    groups: int
    arguments: Mapping[str, Argument]
    stream: int | ExternalStream = 0


class PreparedLaunches(Protocol):
    """Launches that a device has prepared. Their arrays must not be released before the last `launch` has ended."""

    def launch(self) -> None:
        """Queue all launches: those of one stream in order, and those of different streams at the same time.

        They follow what is on stream 0 so far, and what is queued there later follows them.
        """
