"""First derivatives of J and K, as J and K of a mixed basis of derivatives and functions."""
