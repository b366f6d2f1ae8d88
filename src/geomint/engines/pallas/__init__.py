"""One GPU kernel for an ensemble."""
