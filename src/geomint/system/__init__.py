"""What the user states, and what follows from it by differentiation."""
