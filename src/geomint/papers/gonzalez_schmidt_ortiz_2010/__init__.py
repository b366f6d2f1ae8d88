"""See `experiments`."""
