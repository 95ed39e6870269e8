"""What a GPU machine without a network lacks, in files of limited size: wheels, the source tree, compiled kernels.

wheels.py    the wheels, and which steps of the first run lack what cannot be had
kernels.py   cubins of the kernels that the first run needs, compiled without a GPU
packing.py   the parts, their digests, and the script that unpacks them
"""
