"""Mathematics without mechanics."""
