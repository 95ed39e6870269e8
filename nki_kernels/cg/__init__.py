"""NKI kernels of Clebsch-Gordan convolutions over a graph, their references, and the plan of their tiles.

conv.py       z[receiver] += x[sender] ⊗ y[edge], with weights for each edge
gradients.py  the gradients of <gz, z> with respect to x, y and w
edges.py      what both do for a tile of 128 edges: gather, one-hot receivers, weighted features
blocks.py     the columns of a block of paths, and their division into runs of one PSUM bank
memory.py     the bytes of SBUF that a launch takes, and the widest window
windows.py    edges sorted by receiver, divided into windows of receivers and tiles of edges, by a cost model
"""
