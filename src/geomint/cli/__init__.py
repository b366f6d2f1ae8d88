"""The command line ``geomint``, in the order of a first session: list, run, resume, info, certify, reproduce, bench.

`app` assembles the commands and turns geomint's errors into one line and an exit code. A file holds one group of
commands: `listing` (list), `simulations` (run, resume, info), `verification` (certify, bench), `reproduction`
(reproduce). `output` has the tables and the JSON that all of them print.
"""
