"""Models without Python at run time: the operators in C++, and their kernels in a folder beside them.

modules of a model -> problems and directions -> compiled kernels, index, library of operators -> a folder
"""
