"""``python -m geomint``: the same as the command ``geomint``."""

from .cli.app import app

app(prog_name="geomint")
