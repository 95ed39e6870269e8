"""A plan as text and as plain data."""
