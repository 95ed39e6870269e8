"""What the operators in C++ share: the order of edges, the calls of kernels, and the compiler.

sources -> compiler -> shared library in the cache of kernels
"""
