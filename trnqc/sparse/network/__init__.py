"""Networks, contraction trees and loop nests as values, and how they are printed."""
