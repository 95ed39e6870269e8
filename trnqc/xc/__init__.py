"""Exchange and correlation on integration grids."""
