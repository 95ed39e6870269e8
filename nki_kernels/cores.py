"""The division of items among the physical cores of a launch.

Both cores of a logical core run one program, whose device loops must have the same trip count on both; otherwise the
result is undefined. So all cores have equally many items. Where their number does not divide that of the items, ranges
overlap: two cores compute the items in common from the same operands, and write the same bits to the same places. This
is harmless as long as no item reads what it or another item writes to memory that cores share; kernels whose items do
so keep these arrays in memory of each core until they are complete.
"""

from __future__ import annotations


def range_of_core(count: int, core: int, cores: int):
    """First and last + 1 of the items of one core, of ``count`` items."""
    share = (count + cores - 1) // cores
    begin = min(core * share, count - share)
    return begin, begin + share
