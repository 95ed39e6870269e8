"""One product of two arrays: as matrix products over slices, on the arrays of any library."""
