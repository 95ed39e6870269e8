"""The convolution of the first layer, where what an atom sends depends on its element only.

hidden layer of edges -> moments of nodes -> product with the last layer, by elements (`programs`) -> sums over edges
"""
