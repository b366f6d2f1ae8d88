"""Which number of registers is best: a limit set on the module by hand."""
import sys, os
import jax
import jax._src.pallas.triton.lowering as low
from jax._src.lib.mlir import ir
real=low.lower_jaxpr_to_triton_module
LIMIT=[0]
def lower(*a,**k):
    r=real(*a,**k)
    if LIMIT[0]:
        op=r.module.operation
        with op.context:
            op.context.allow_unregistered_dialects=True
            op.attributes["ttg.maxnreg"]=ir.IntegerAttr.get(ir.IntegerType.get_signless(32),LIMIT[0])
    return r
low.lower_jaxpr_to_triton_module=lower
if __name__=="__main__":
    from benchmarks import gpu
    from geomint.engines import Kernel, kernel
    limits=[int(x) for x in os.environ.get("LIMITS","0,128").split(",")]
    for name in sys.argv[1:]:
        row=gpu.ROWS[name]()
        for L in limits:
            LIMIT[0]=L; kernel._programs.clear(); jax.clear_caches()
            try:
                engine,carry,ready=gpu.begun(Kernel,row,row.members)
                s,after=gpu.timed(engine,carry,row.steps,5)
                print(name, L, f"{gpu.work(engine,carry,after,row,row.members,row.steps)/s:.4e}", f"ready {ready:.1f}", engine.described[:200], flush=True)
            except Exception as e: print(name,L,"ERR",str(e)[:300],flush=True)
