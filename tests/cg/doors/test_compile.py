"""torch.compile of a whole accelerated MACE model: energies, forces and a step of training are one graph."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mace")

from torch._dynamo.utils import counters  # noqa: E402

import trnqc.cg  # noqa: E402
from examples.data.atomistic_models import diamond, mace_batch, mace_model  # noqa: E402


def results(model, compiled, batch):
    """Energy, forces, and the gradients of a loss with respect to the weights."""
    data = {name: v.clone() if torch.is_tensor(v) else v for name, v in batch.items()}
    data["positions"].requires_grad_()
    out = compiled(data, training=True, compute_force=True)
    weights = list(model.parameters())
    loss = out["forces"].pow(2).sum() + out["energy"].pow(2).sum()
    return out["energy"], out["forces"], *torch.autograd.grad(loss, weights, allow_unused=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_step_of_training_is_one_graph(backend):
    from mace.tools.compile import configure_autograd_for_compile, simplify

    from examples.deploy_mace import without_script

    model = without_script(mace_model("8x0e+8x1o", torch.float64)).requires_grad_(True)
    batch = mace_batch(diamond(1), torch.float64)
    assert len(trnqc.cg.accelerate(model)) == 4
    simplify(model)
    expected = results(model, model, batch)
    configure_autograd_for_compile()
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for ours, theirs in zip(results(model, compiled, batch), expected, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1
