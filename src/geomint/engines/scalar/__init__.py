"""From a jaxpr on arrays to a program on single numbers, which llvm/ and pallas/ write as machine code or a GPU kernel.

Start with program.py: `StepProgram` holds the jaxprs of a step and of a save, `Loop` translates them inside the loop
over blocks. translate.py evaluates a jaxpr on arrays of single values: moves of entries cost nothing, element-wise
operations become one operation for each entry. Its rules are also in random_numbers.py and small_matrices.py;
number_types.py says which types are exact. values.py defines `Code`, the interface through which operations are
emitted, and constant folding. fma_fusion.py is the optimiser that both codes inherit. program_key.py hashes a program
for the cache on disk. scalar_engine.py is the base class of both engines, with the fallback to XLA.

May import: methods, system, numerics, and block.py and xla.py of engines. Neither llvm/ nor pallas/.
"""
