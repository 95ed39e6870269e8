"""Stage 1: the order of pairwise contractions with the least work.

program -> network of bit sets -> binary trees -> shared products, common factors, blocks of zeros, symmetries
"""
