"""Running kernels: the target, the run in progress, launches on one or two cores, and the decorator `jit`."""
