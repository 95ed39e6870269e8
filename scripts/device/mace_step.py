"""A MACE step on a GPU that does nothing: energies and forces by our layers under PyTorch, for `host_costs`.

The model has the layers of mace-medium in the order of MACE: radial networks, linear layers by e3nn, our convolutions
and symmetric contractions, and a readout. Tensors are PyTorch's "meta" tensors, which have shapes and no numbers, so
that operators of PyTorch cost their dispatch alone. This is that of the stand-in, in Python, and slower than that of a
GPU; the seconds of our own operators are therefore counted apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from e3nn import o3
from torch import Tensor, nn

from scripts.device import recorded_torch
from scripts.device.recorded_torch import DeviceTensor, torch_on
from scripts.device.recording_driver import RecordedDevice
from scripts.workloads.tensor_products import SPHERES, channelwise
from trnqc.cg import SymmetricContraction, TensorProductConv

# Radial functions, and widths of the hidden layers of radial networks, as in MACE-MP-0.
BESSEL, WIDTHS = 10, (64, 64, 64)
ELEMENTS, CORRELATION = 10, 3


@dataclass(frozen=True)
class Size:
    """Atoms and edges of a structure; irreps of features by layer, the first of which come from the elements."""

    atoms: int
    edges: int
    features: tuple[str, ...]
    degree: int = 3


SIZES = {
    # Fifty neighbours for each atom are those of a crystal or a liquid within 5 to 6 Angstrom.
    "mace-medium": Size(1000, 50_000, ("128x0e", "128x0e+128x1o", "128x0e")),
    "tiny": Size(5, 20, ("2x0e", "2x0e+2x1o", "2x0e"), 1),
}


class Layer(nn.Module):
    """An interaction and a product of MACE: features x of the atoms to features of the next layer."""

    def __init__(self, size: Size, before: str, after: str) -> None:
        super().__init__()
        channels = before.partition("x")[0]
        inner = "+".join(f"{channels}x{l}{'eo'[l % 2]}" for l in range(size.degree + 1))
        problem = channelwise(before, SPHERES[size.degree], inner)
        self.up = o3.Linear(before, before)
        self.conv = TensorProductConv(problem)
        widths = (BESSEL, *WIDTHS, problem.weight_numel)
        layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b, bias=False), nn.SiLU())]
        self.radial = nn.Sequential(*layers[:-1])
        self.down = o3.Linear(str(problem.irreps_out), inner)
        self.contraction = SymmetricContraction(inner, after, CORRELATION, num_elements=ELEMENTS)
        self.product, self.skip = o3.Linear(after, after), o3.Linear(before, after)
        self.readout = o3.Linear(after, "1x0e")

    def forward(self, x: Tensor, harmonics: Tensor, bessel: Tensor, edges: Tensor, elements: Tensor) -> Any:
        """Return the features of the next layer, and the energy of each atom."""
        messages = self.conv(self.up(x), harmonics, self.radial(bessel), edges[1], edges[0])
        after = self.product(self.contraction(self.down(messages), elements)) + self.skip(x)
        return after, self.readout(after)


class Model(nn.Module):
    """The energy of a structure from positions [atoms, 3], edges [2, edges] and the elements of atoms."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.harmonics = list(range(size.degree + 1))
        self.embedding = nn.Parameter(torch.randn(ELEMENTS, o3.Irreps(size.features[0]).dim))
        self.layers = nn.ModuleList(Layer(size, *pair) for pair in pairwise(size.features))
        self.register_buffer("roots", torch.arange(1, BESSEL + 1) * torch.pi)

    def forward(self, positions: Tensor, edges: Tensor, elements: Tensor) -> Tensor:
        vectors = positions[edges[1]] - positions[edges[0]]
        lengths = vectors.norm(dim=1, keepdim=True)
        harmonics = o3.spherical_harmonics(self.harmonics, vectors, True, "component")
        bessel = torch.sin(self.roots * lengths) / lengths * (1 - lengths) ** 2
        x, energy = self.embedding[elements], torch.zeros_like(positions[:, :1])
        for layer in self.layers:
            x, part = layer(x, harmonics, bessel, edges, elements)
            energy = energy + part
        return energy.sum()


class Clock:
    """The CPU seconds within our operators, without those of PyTorch's operators that they call."""

    def __init__(self) -> None:
        self.seconds, self._inside = 0.0, False

    def of(self, work: Callable[[], Any]) -> float:
        """Return the seconds of one call."""
        before = self.seconds
        work()
        return self.seconds - before

    def own(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        """Return one of our operators, which lets the clock run."""

        def timed(*arguments: Any) -> Any:
            begin, self._inside = time.process_time(), True
            result = operator(*arguments)
            self.seconds, self._inside = self.seconds + time.process_time() - begin, False
            return result

        return timed

    def other(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operator of PyTorch, during which the clock stands still."""

        def timed(*arguments: Any) -> Any:
            begin = time.process_time()
            result = operator(*arguments)
            self.seconds -= (time.process_time() - begin) * self._inside
            return result

        return timed


@contextmanager
def mace_step(size: Size, device: RecordedDevice) -> Iterator[tuple[Callable[[], None], Clock]]:
    """Yield a function that computes energy and forces once, and the clock of our operators."""
    model, clock = Model(size), Clock()
    ours = {name: clock.own(operator) for name, operator in recorded_torch.OURS.items()}
    watched = mock.patch.object(recorded_torch, "_on_host", clock.other(recorded_torch._on_host))
    with mock.patch.dict(recorded_torch.OURS, ours), watched, torch_on(device.driver, device=device) as moved:

        def there(tensor: Tensor) -> DeviceTensor:
            return moved(tensor.detach().to("meta"))

        parts: dict[str, Tensor] = {name: there(t) for name, t in (*model.named_parameters(), *model.named_buffers())}
        edges, elements = torch.zeros(2, size.edges, dtype=torch.int64), torch.zeros(size.atoms, dtype=torch.int64)
        fixed, positions = (there(edges), there(elements)), there(torch.zeros(size.atoms, 3)).requires_grad_()

        def step() -> None:
            energy = torch.func.functional_call(model, parts, (positions, *fixed))
            torch.autograd.grad(energy, positions)

        yield step, clock
