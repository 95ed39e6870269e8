"""J and K of densities that are in the memory of a device, added to the potential there.

D -> elements by pairs and by blocks, largest elements -> launches of a pass (run.py) -> sums of quartets -> J, V

The orders of elements are tables of positions, which are uploaded once.
"""

from __future__ import annotations

import numpy as np

from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.scf.programs import ScfPrograms
from trnqc.eri.shells.pairs import pair_orbitals
from trnqc.jit.device import Argument, DeviceArray


class Potential:
    """Adds J and K of densities to matrices in the memory of the only device of a builder.

    Parameters
    ----------
    builder
        J and K of a molecule.
    programs
        The programs of its device.
    count
        The number of densities.
    share
        V is J of all densities less this share of the K of each.

    Raises
    ------
    MemoryLimit
        If the device has too little memory.
    """

    def __init__(self, builder: CudaJKBuilder, programs: ScfPrograms, count: int, share: float) -> None:
        self._programs, self._device, self._count, self._share = programs, programs.device, count, share
        self._n, begins = builder.mol.nao_nr(), np.asarray(builder.mol.ao_loc_nr(), np.int64)
        self._shells, self._widest = len(begins) - 1, int(np.diff(begins).max(initial=0))
        self._run, tables = builder.resident_run(count)
        square = np.arange(self._n**2).reshape(1, self._n, self._n)
        places, order = np.full((self._n, self._n), -1), [np.zeros(0, np.int64)]
        for table in tables:
            i, j = pair_orbitals(table.pairs)
            places[i, j] = np.arange(table.at, table.at + table.elements).reshape(i.shape)
            order.append((i * self._n + j).ravel())
        self._elements = sum(len(part) for part in order)
        arrays = {
            "begins": begins,
            "pair_order": np.concatenate(order),
            "pairs": places,
            # The layout orders floating-point numbers, which are exact up to 2^53.
            "block_order": builder.layout.blocked(square.astype(np.float64))[0].astype(np.int64),
            "blocks": builder.layout.matrices(square.reshape(1, -1).astype(np.float64))[0].astype(np.int64),
        }
        try:
            self._tables = dict(zip(arrays, self._device.upload_all(list(arrays.values()))))
        except BaseException:
            self._run.release()
            raise

    def add(self, dm: DeviceArray, j: DeviceArray, v: DeviceArray) -> None:
        """Add J of all densities dm [count, n, n] to j [n, n], and their potentials to v [count, n, n]."""
        arrays, tables, count, n = self._run.arrays, self._tables, self._count, self._n
        numbers: dict[str, Argument] = {"n": n, "count": count, "shells": self._shells, "widest": self._widest}
        orders = (("dm_pairs", "pair_order", self._elements), ("dm", "block_order", n * n))
        for name, order, each in orders:
            self._programs("gather", count * each, step=n * n, count=count, order=tables[order], x=dm, out=arrays[name])
        blocks = self._shells**2
        self._programs("maxima", blocks, **numbers, begins=tables["begins"], dm=dm, dm_max=arrays["dm_max"])
        self._programs("largest", blocks, shells=self._shells, dm_max=arrays["dm_max"], reals=arrays["reals"])
        self._run.launch()
        sums = {"vj": arrays["vj"], "vk": arrays["vk"], "pairs": tables["pairs"], "blocks": tables["blocks"]}
        self._programs("potential", n * n, n=n, count=count, step=self._elements, share=self._share, **sums, j=j, v=v)

    def release(self) -> None:
        """Free the memory of densities, sums and positions."""
        self._run.release()
        self._device.release(*self._tables.values())
        self._tables = {}
