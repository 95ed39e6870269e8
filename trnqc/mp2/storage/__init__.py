"""What jobs keep on disk: a store of arrays that survives a kill, and a matrix of rows in a file."""
