"""The constants of the cost model: seconds that a machine takes for each kind of work in a loop nest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Seconds for one unit of each kind of work, on one core.

    The defaults were fitted to nests on one core of an AMD EPYC (Zen 4, AVX-512). `run.measured_rates.machine_rates`
    measures those of the machine at hand, and falls back on these proportions where a measurement does not tell two of
    them apart. Tests that check which nest is chosen use the defaults.
    """

    # Loops that have other loops inside, seconds per turn: over all values of an index; over the coordinates that one
    # operand stores; over those that several operands have in common, per coordinate looked at.
    dense_turn: float = 0.4e-9
    compressed_turn: float = 0.8e-9
    intersected_turn: float = 3.0e-9
    # Seconds to start an innermost loop, and in addition if it adds to the row to which the loop before it has just
    # added, and so waits for it.
    inner_start: float = 0.4e-9
    inner_dependence: float = 0.2e-9
    # Innermost loop over all values of its index, seconds per element: adding to a row and summing to a scalar, both by
    # vectors, and any loop that does not run along its arrays.
    row_element: float = 0.07e-9
    dot_element: float = 0.1e-9
    strided_element: float = 0.5e-9
    # Innermost loop over stored coordinates, seconds per element: adding to one place, and to many.
    gathered_element: float = 0.45e-9
    scattered_element: float = 0.6e-9
    # Workspaces: seconds to clear an element of an array, and for an update that enters its coordinate in a list or
    # looks it up in a hash table.
    cleared_element: float = 0.2e-9
    listed_update: float = 2.0e-9
    hashed_update: float = 20.0e-9
    # Results: seconds to sort an element of a sparse result that was listed, to append one, and to allocate an element
    # of a dense result.
    sorted_element: float = 30.0e-9
    appended_element: float = 5.0e-9
    allocated_element: float = 1.0e-9
    # Bytes that come from behind the first cache again, seconds per byte: to be read, and to be added to.
    near_read: float = 0.002e-9
    near_update: float = 0.004e-9
    # Bytes that come from behind the second cache again, seconds per byte: in order, and, where stored coordinates say
    # which, to be read and to be added to.
    far: float = 0.008e-9
    far_scattered_read: float = 0.02e-9
    far_scattered_update: float = 0.07e-9
    # Seconds per multiply-add of a product of dense matrices.
    matrix_product: float = 0.06e-9
    # Bytes that stay in the first and in the second cache of a core.
    first_cache: float = 2**15
    second_cache: float = 3 * 2**18
