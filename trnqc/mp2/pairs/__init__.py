"""Pair energies from factors.

    pairs: all at once | block_loop: block by block | ranks: on several ranks -> accuracy: estimated error -> PairStep

blocks has the blocks of pairs and how they are computed, distribution which rank holds and computes what.
"""
