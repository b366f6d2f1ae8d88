"""What the user states, and what follows from it by differentiation.

May import `numerics` and `errors`. Start with `system.System` (energy, mass, constraint, symmetries, params: nothing
derived) and `mechanics.Mechanics`, the only place where derivatives are taken and the only thing that methods see.
`lagrangian` is the same for systems stated by L(q, v); `constraints` and `symmetries` hold ready-made ones; `checks`
has the argument checks that all packages use; `index_check` finds indices out of range, which JAX would clamp.
"""
