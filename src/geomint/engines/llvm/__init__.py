"""The native engine: the loop over steps as machine code of the CPU, by LLVM.

Start with engine.py: `Native` runs a compiled loop, `_FunctionBuilder` builds the LLVM function around it. code.py has
`LlvmCode`, which emits arithmetic as LLVM instructions, control_flow.py its loops, branches and memory accesses.
compile.py turns a module into machine code, and loads object code that numerics.disk_cache has kept from an earlier
process.

May import: engines/scalar, block.py and xla.py of engines, and what these may import. Not pallas/. llvmlite is imported
when the first program is compiled, since not every run needs it.
"""
