"""Machine code for the processor."""
