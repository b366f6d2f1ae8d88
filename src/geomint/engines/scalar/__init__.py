"""From a jaxpr to a program on single numbers."""
