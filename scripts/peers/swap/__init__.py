"""Pytest plugins that put our objects in the place of a peer's."""
