import sys, time, glob, os, shutil, subprocess
import jax, numpy as np
import jax._src.pallas.triton.pallas_call_registration as reg
real=reg.triton.compile; last=[]
class Wrapped:
    def __getattr__(self, n): return getattr(mod, n)
mod=reg.triton
def compile(*a, **k):
    r=real(*a, **k); last.append(r.asm); return r
w=Wrapped(); w.compile=compile; reg.triton=w
from benchmarks import gpu
from geomint.engines import Kernel, kernel
def show(name):
    if not last: print("no ptx"); return
    f=os.environ["OUT"]+f"/{name}.ptx"; a=last[-1]; open(f,"wb").write(a if isinstance(a,bytes) else a.encode())
    print("   ", [l for l in subprocess.run(["ptxas","-v","-arch=sm_90a",f,"-o","/tmp/x.cubin"],capture_output=True,text=True).stderr.split("\n") if "Used" in l or "spill" in l or "error" in l or "fatal" in l], flush=True)
def main(names):
    for name in names:
        row=gpu.ROWS[name]()
        engine,carry,ready=gpu.begun(Kernel,row,row.members)
        s,after=gpu.timed(engine,carry,row.steps,5)
        print(name, f"{gpu.work(engine,carry,after,row,row.members,row.steps)/s:.4e}", f"ready {ready:.1f}", engine.described[:200], flush=True)
        show(name)
if __name__=="__main__": main(sys.argv[1:])
