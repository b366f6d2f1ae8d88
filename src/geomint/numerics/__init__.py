"""Mathematics without mechanics; it imports only geomint.errors.

compensated     sums that keep their rounding errors
interpreter     evaluation of the programs that JAX traces (jaxprs) on other values than arrays; the rule sets are
                taylor (several derivatives at once), intervals (rigorous bounds), polynomials (degrees), indices
                (indices out of range), and engines.scalar (machine code)
linalg          linear systems and their structure, Newton's method
cache           a cache of bounded size
compilation     options of jit;  hints: annotations for the engines

Start with `interpreter` for anything that analyses a user's function, with `linalg` for anything that solves equations.
"""
