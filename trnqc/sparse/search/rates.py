"""The constants of the cost model: seconds that a machine takes for each kind of work in a loop nest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkRates:
    """Seconds for one unit of each kind of work, on one core.

    The defaults were fitted to nests on one core of an AMD EPYC (Zen 4, AVX-512). They are the reference of the fit in
    `run.measured_rates`, which keeps their proportions where the measurements do not tell two kinds of work apart.
    Tests that check which nest is chosen use them as well. Plans use the rates of `run.machine_rates`.
    """

    # Where the numbers come from, in words for the printed plan.
    source: str = "default, of an AMD EPYC (Zen 4) with AVX-512"
    # Seconds per turn of a loop that contains other loops: over all values of an index; over the coordinates that one
    # operand stores; over the coordinates that several operands have in common, per coordinate that is looked at.
    dense_turn: float = 0.4e-9
    compressed_turn: float = 0.8e-9
    intersected_turn: float = 3.0e-9
    # Seconds to start an innermost loop.
    inner_start: float = 0.4e-9
    # Additional seconds to start an innermost loop that adds to the same row as the loop before, for which it waits.
    inner_dependence: float = 0.2e-9
    # Seconds per element of an innermost loop over all values of its index: adding to a row by vectors; summing to a
    # scalar by vectors; any loop along which the elements of an array are not contiguous.
    row_element: float = 0.07e-9
    dot_element: float = 0.1e-9
    strided_element: float = 0.5e-9
    # Seconds per element of an innermost loop over stored coordinates: adding to one element, and to many.
    gathered_element: float = 0.45e-9
    scattered_element: float = 0.6e-9
    # Seconds to clear an element of a workspace that is an array.
    cleared_element: float = 0.2e-9
    # Seconds of an update of a workspace that enters its coordinate in a list, or looks it up in a hash table.
    listed_update: float = 2.0e-9
    hashed_update: float = 20.0e-9
    # Seconds to put an element of a sparse result in order that was computed out of order: from a workspace that is an
    # array, and from a hash table.
    ordered_element: float = 3.5e-9
    sorted_element: float = 30.0e-9
    # Seconds to append an element to a sparse result.
    appended_element: float = 5.0e-9
    # Seconds to allocate an element of a dense result.
    allocated_element: float = 1.0e-9
    # Seconds per byte that is loaded again from behind the first cache: to be read, and to be added to.
    near_read: float = 0.002e-9
    near_update: float = 0.004e-9
    # Seconds per byte that is loaded again from behind the second cache: in order; at stored coordinates, to be read;
    # and at stored coordinates, to be added to.
    far: float = 0.008e-9
    far_scattered_read: float = 0.02e-9
    far_scattered_update: float = 0.07e-9
    # Seconds per multiply-add of a product of dense matrices.
    matrix_product: float = 0.06e-9
    # Bytes that stay in the first and in the second cache of a core.
    first_cache: float = 2**15
    second_cache: float = 3 * 2**18
