"""The kernel engine: an ensemble as one GPU kernel, written in Pallas and compiled by Triton.

Start with engine.py: `Kernel` launches a compiled kernel, and `Columns` arranges the numbers of members in memory.
`PallasCode` in code.py emits operations on all lanes of a warp. assembly.py has PTX instructions for which Triton
generates slower code.

May import: engines/scalar, block.py and xla.py of engines, and what these may import. Not llvm/. Pallas is imported
when the first kernel is compiled.
"""
