"""Wall-clock seconds of the parts of a calculation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timings(dict[str, float]):
    """Seconds by part. The part "SCF" contains the others.

    Examples
    --------
    >>> timings = Timings({"SCF": 4.0, "J and K": 3.0})
    >>> print(timings)
    seconds: SCF 4.00 = J and K 3.00 + rest 1.00
    """

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time that the context takes to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self[part] = self.get(part, 0.0) + time.perf_counter() - start

    def __str__(self) -> str:
        parts = {name: seconds for name, seconds in self.items() if name != "SCF"}
        whole = self.get("SCF", 0.0)
        parts["rest"] = whole - sum(parts.values())
        return f"seconds: SCF {whole:.2f} = " + " + ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
