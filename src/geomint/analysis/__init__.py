"""What a method does on a system, measured.

`measure`, `convergence` and `reference` measure single properties; `certify` compares them with the claims of a method.
`work_precision` measures errors and costs, which `compare` tabulates and `recommend` searches. `section` finds
crossings of a surface, `lyapunov` exponents.
`stability` computes stability diagrams, `fast_slow` splits a system into fast and slow parts, `penalty` replaces
constraints by stiff springs and recovers their multipliers.

Statistics of runs of many particles: `averages` has means with errors that take the autocorrelation into account, and
the drift of the energy; `temperature` compares the kinetic temperature with its χ² distribution; `radial` counts the
distances of pairs.
"""
