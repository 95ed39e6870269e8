"""Pair energies from factors.

    pairs: all at once | block_loop: block by block | ranks: on several ranks -> accuracy: estimated error -> PairStep

`blocks` divides pairs into blocks and computes one, and `distribution` assigns rows and blocks to ranks.
"""
