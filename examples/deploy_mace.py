"""A MACE model with trnqc's kernels, written for programs without Python.

    python -m examples.deploy_mace OUT                              # diamond, random weights
    python -m examples.deploy_mace OUT --model my.model --geometry my.xyz
    python -m examples.deploy_mace OUT --package                    # also for AOTInductor (minutes of compiling)

Writes to the folder OUT

    model.pt      the model in TorchScript
    model.pt2     the model, its forces and its stress as a package of AOTInductor
    inputs.pt     the model's input tensors for the structure, by name
    kernels/      the operators (libtrnqc_operators.so) and the kernels

and prints energy, forces and stress as examples/cpp/energy.cpp does, which computes them from these files.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from ase.io import read
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import trnqc.cg
from examples.data.atomistic_models import diamond, mace_batch, mace_model
from trnqc.errors import TrnqcError

# The inputs and results of the package, in the order of examples/cpp/energy.cpp.
INPUTS = ("positions", "node_attrs", "edge_index", "shifts", "unit_shifts", "cell", "batch", "ptr")
RESULTS = ("energy", "forces", "stress")
# The dimension of each input that counts atoms or edges; the others have fixed sizes.
DYNAMIC = {"positions": 0, "node_attrs": 0, "edge_index": 1, "shifts": 0, "unit_shifts": 0, "batch": 0}


class Evaluation(nn.Module):
    """A MACE model as a function of tensors, for one structure and one head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        data = dict(zip(INPUTS, inputs)) | {"head": torch.zeros(1, dtype=torch.int64)}
        output = self.model(data, compute_force=True, compute_stress=True)
        return tuple(output[name].detach() for name in RESULTS)


def scripted(model: nn.Module) -> Any:
    """Compile an accelerated model by TorchScript."""
    from e3nn.util import jit

    return jit.compile(model, in_place=False)


def without_script(model: nn.Module) -> nn.Module:
    """Return a copy of a MACE model whose parts are not compiled by TorchScript, so that it can be traced."""
    from mace.tools.compile import disable_e3nn_codegen
    from mace.tools.scripts_utils import extract_config_mace_model

    dtype = next(model.parameters()).dtype
    with disable_e3nn_codegen():
        copy = type(model)(**extract_config_mace_model(model)).to(dtype)
    copy.load_state_dict(model.state_dict())
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("e3nn", "mace"):
            for key, value in list(vars(module).items()):
                if isinstance(value, torch.jit.ScriptFunction):
                    setattr(module, key, vars(value)["_torchdynamo_inline"])
    return copy.eval().requires_grad_(False)


def exported(model: nn.Module, inputs: dict[str, Tensor]) -> torch.export.ExportedProgram:
    """Trace energy, forces and stress of an accelerated model, for any number of atoms and edges."""
    operands = tuple(inputs[name] for name in INPUTS)
    traced = make_fx(Evaluation(model), tracing_mode="symbolic", _allow_non_fake_inputs=True)(*operands)
    sizes = tuple({DYNAMIC[name]: torch.export.Dim.AUTO} if name in DYNAMIC else None for name in INPUTS)
    return torch.export.export(traced, operands, dynamic_shapes=sizes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder")
    parser.add_argument("--model", help="a MACE model file (default: random weights for carbon)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: diamond)")
    parser.add_argument("--hidden", default="16x0e+16x1o", help="irreps of random weights (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--package", action="store_true", help="write a package of AOTInductor too")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    torch.set_default_dtype(dtype)
    model = torch.load(args.model, weights_only=False) if args.model else mace_model(args.hidden, dtype)
    model = model.cpu().to(dtype).eval().requires_grad_(False)
    atoms = read(args.geometry) if args.geometry else diamond(1)
    batch = mace_batch(atoms, dtype, float(model.r_max), numbers=model.atomic_numbers.tolist())
    inputs = {name: batch[name] for name in (*INPUTS, "head")}

    swapped = trnqc.cg.accelerate(model)
    trnqc.cg.write_kernels(model, args.out / "kernels")
    scripted(model).save(args.out / "model.pt")
    torch.save(inputs, args.out / "inputs.pt")
    if args.package:
        trnqc.cg.undo(model)
        model = without_script(model)
        trnqc.cg.accelerate(model)
        torch._inductor.aoti_compile_and_package(exported(model, inputs), package_path=str(args.out / "model.pt2"))
    print("swapped:", ", ".join(swapped), file=sys.stderr)
    for name, value in zip(RESULTS, Evaluation(model)(*(inputs[name].clone() for name in INPUTS))):
        print(name, *(f"{x:.17g}" for x in value.double().flatten().tolist()))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
