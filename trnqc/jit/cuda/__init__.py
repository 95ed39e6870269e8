"""What a GPU does by its driver: copies between it and the host, and graphs of launches."""
