"""Networks, contraction trees and loop nests as values, and their printed forms."""
