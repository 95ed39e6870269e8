"""Linear layers of e3nn and of MACE as descriptions, their path weights folded into the matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.irreps import Irrep, Irreps, MulIrrep
from trnqc.errors import UnsupportedError
from trnqc.mace.model import Gate, Layer, Linear, RadialNetwork


def array(tensor: Any) -> np.ndarray:
    """A tensor, or a number, as a float64 array."""
    values = tensor.detach().cpu().double().numpy() if hasattr(tensor, "detach") else tensor
    return np.array(values, np.float64, order="C")


def expect(name: str, module: Any, *kinds: str) -> str:
    """Return the name of the class of a module. Raises UnsupportedError for a class that is not among `kinds`."""
    kind = type(module).__name__
    if kind not in kinds:
        raise UnsupportedError(f"{name}: expected {' or '.join(kinds)}, found {kind} of {type(module).__module__}")
    return kind


def linear(name: str, module: Any, scale: float = 1.0) -> Linear:
    """An e3nn `o3.Linear` without biases, its matrices multiplied by `scale`."""
    expect(name, module, "Linear")
    _e3nn(name, module)
    blocks, offset, weights = [], 0, array(module.weight)
    for path in module.instructions:
        if path.i_in == -1:
            raise UnsupportedError(f"{name}: expected a linear layer without biases, found one with biases")
        size = int(np.prod(path.path_shape))
        matrix = weights[offset : offset + size].reshape(path.path_shape)
        blocks.append((path.i_in, path.i_out, scale * path.path_weight * matrix))
        offset += size
    return Linear(Irreps.of(module.irreps_in), Irreps.of(module.irreps_out), tuple(blocks))


def linear_by_element(name: str, module: Any) -> Linear:
    """A fully connected tensor product with the one-hot vector of elements: a linear layer for each element."""
    expect(name, module, "FullyConnectedTensorProduct")
    _e3nn(name, module)
    irreps = Irreps.of(module.irreps_in1), Irreps.of(module.irreps_out)
    blocks, offset, weights = [], 0, array(module.weight)
    for path in module.instructions:
        size = int(np.prod(path.path_shape))
        matrix = weights[offset : offset + size].reshape(path.path_shape).transpose(1, 0, 2)
        degree = irreps[0][path.i_in1].ir.l
        coupling = clebsch_gordan(degree, 0, degree)[0, 0, 0]
        blocks.append((path.i_in1, path.i_out, np.ascontiguousarray(path.path_weight * coupling * matrix)))
        offset += size
    return Linear(*irreps, tuple(blocks))


def _e3nn(name: str, module: Any) -> None:
    if not type(module).__module__.startswith("e3nn."):
        raise UnsupportedError(
            f"{name}: expected a layer of e3nn, found {type(module)}: build the model without cuEquivariance"
        )


def affine(name: str, module: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Matrix [inputs, outputs] and bias of an e3nn `o3.Linear` from even scalars to even scalars."""
    expect(name, module, "Linear")
    irreps = Irreps.of(module.irreps_in).simplify(), Irreps.of(module.irreps_out).simplify()
    if any(len(side) != 1 or (side[0].ir.l, side[0].ir.p) != (0, 1) for side in irreps):
        raise UnsupportedError(f"{name}: expected even scalars, found {irreps[0]} -> {irreps[1]}")
    if any(len(module.instructions) != 1 + bool(module.bias_numel) for side in irreps):
        raise UnsupportedError(f"{name}: expected one slot of scalars on each side, found {module}")
    path = module.instructions[0]
    matrix = array(module.weight).reshape(path.path_shape) * path.path_weight
    return matrix, array(module.bias) if module.bias_numel else None


def network(name: str, module: Any, size: int) -> RadialNetwork:
    """A network of an edge: e3nn's FullyConnectedNet, or MACE's RadialMLP whose first `size` inputs are radial."""
    kind = expect(name, module, "FullyConnectedNet", "RadialMLP")
    return _normalised(name, module) if kind == "FullyConnectedNet" else _with_norms(name, module, size)


def _normalised(name: str, module: Any) -> RadialNetwork:
    layers, constant = [], 1.0
    modules = list(module)
    for n, layer in enumerate(modules):
        last = n == len(modules) - 1
        if (layer.act is None) != last:
            raise UnsupportedError(f"{name}: expected an activation after each layer but the last, found {module}")
        below = layer.h_in * layer.var_in / (layer.var_out if last else 1.0)
        layers.append(Layer(array(layer.weight) * (constant / below**0.5), act=None if last else "silu"))
        if not last:
            constant = activation(name, layer.act, "silu")[1] * layer.var_out**0.5
    return RadialNetwork(tuple(layers))


def activation(name: str, act: Any, *known: str) -> tuple[str, float]:
    """Name and factor of an activation function that e3nn has normalised. Raises UnsupportedError for another one."""
    function = getattr(act, "f", act)
    called = getattr(function, "__name__", type(function).__name__).lower()
    if called not in known:
        raise UnsupportedError(f"{name}: expected the activation function {' or '.join(known)}, found {function!r}")
    return called, 1.0 if getattr(act, "_is_id", True) else float(act.cst)


def _with_norms(name: str, module: Any, size: int) -> RadialNetwork:
    layers: list[Layer] = []
    for part in module.net:
        kind = expect(name, part, "Linear", "LayerNorm", "SiLU")
        if kind == "Linear":
            layers.append(Layer(array(part.weight).T.copy(), array(part.bias)))
        elif kind == "LayerNorm":
            norm = array(part.weight), array(part.bias), float(part.eps)
            layers[-1] = Layer(layers[-1].weight, layers[-1].bias, norm)
        else:
            layers[-1] = Layer(layers[-1].weight, layers[-1].bias, layers[-1].norm, act="silu")
    return RadialNetwork(tuple(layers))


def gate(name: str, module: Any) -> Gate:
    """MACE's gated non-linearity; silu for scalars and the logistic function for gates."""
    expect(name, module, "GatedEquivariantBlock")
    if any(irrep.ir.p != 1 for irrep in Irreps.of(module.irreps_scalars)):
        raise UnsupportedError(f"{name}: expected even scalars, found {module.irreps_scalars}")
    for function, expected in ((module._act_scalar, "silu"), (module._act_gate, "sigmoid")):
        if function is not None and function.__name__ != expected:
            raise UnsupportedError(f"{name}: expected the function {expected}, found {function!r}")
    out = Irreps.of(module.irreps_out)
    gates = tuple(MulIrrep(slot.mul, Irrep(0, 1)) for slot in out[1:])
    irreps = Irreps((out[0], *gates, *out[1:]))
    if irreps.simplify() != Irreps.of(module.irreps_in):
        raise UnsupportedError(f"{name}: expected inputs {irreps}, found {module.irreps_in}")
    return Gate(irreps, out, float(module._scalar_cst), float(module._gate_cst))


def divided(layer: Linear, irreps: Irreps) -> Linear:
    """The same linear layer with outputs in the smaller slots of `irreps`, which follow one another in the larger."""
    parts: list[tuple[int, int]] = []
    slots = iter(layer.irreps_out)
    slot, number, used = next(slots), 0, 0
    for part in irreps:
        if used == slot.mul:
            slot, number, used = next(slots), number + 1, 0
        parts.append((number, used))
        used += part.mul
    blocks = [
        (i, n, np.ascontiguousarray(matrix[:, start : start + irreps[n].mul]))
        for n, (number, start) in enumerate(parts)
        for i, o, matrix in layer.blocks
        if o == number
    ]
    return Linear(layer.irreps_in, irreps, tuple(blocks))
