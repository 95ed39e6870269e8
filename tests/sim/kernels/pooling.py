"""Mean and maximum over square windows of x[C, H, W], read through a five-dimensional access pattern."""

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


@jit
def pool(x, window, op):
    C, H, W = x.shape
    out_h, out_w = H // window, W // window
    image = nl.ndarray((C, H, W), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=image, src=x)
    windows = image.ap([[H * W, C], [window * W, out_h], [window, out_w], [W, window], [1, window]])
    pooled = nl.ndarray((C, out_h, out_w), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=pooled, op=nl.add if op == "mean" else nl.maximum, data=windows, axis=[3, 4])
    if op == "mean":
        nisa.tensor_scalar(dst=pooled, data=pooled, op0=nl.multiply, operand0=1.0 / window**2)
    out = nl.ndarray((C, out_h, out_w), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=pooled)
    return out


def reference(x, window, op):
    C, H, W = x.shape
    h, w = H // window, W // window
    cut = x[:, : h * window, : w * window].reshape(C, h, window, w, window)
    return cut.mean((2, 4)) if op == "mean" else cut.max((2, 4))
