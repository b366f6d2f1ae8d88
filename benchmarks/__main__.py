import importlib
import sys

NAMES = (
    "overhead",
    "compensation",
    "filtered",
    "chains",
    "oscillatory",
    "energy_stepping",
    "sheet",
    "native",
    "compiling",
    "driven",
    "rigid_chain",
    "solids",
    "contact",
    "drop",
    "free_top",
    "gpu",
)

for name in sys.argv[1:] or NAMES:
    importlib.import_module(f"benchmarks.{name}").main()
