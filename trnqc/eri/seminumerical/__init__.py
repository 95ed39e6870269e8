"""Exchange matrices with one of the two integrations on a grid of points, for large molecules."""
