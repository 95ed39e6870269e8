"""The order of pairwise contractions with the least work.

program ─► networks of bit sets ─► binary trees; shared products, common factors, zero blocks, symmetric pairs
"""
