"""The numbers of experiments as docs/results/PAPER.json."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def record(row, machine):
    """Write the numbers of one run, a row of results.json, to docs/results/PAPER.json, to eight digits."""
    path = RESULTS / f"{row['paper']}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    checks = [check | {"measured": rounded(check["measured"])} for check in row["checks"]]
    size = {"seconds": round(row["seconds"], 1), "machine": machine, "checks": checks}
    about = {"title": row["title"], "figure": row["figure"]} | {"quick" if row["quick"] else "full": size}
    results[row["experiment"]] = results.get(row["experiment"], {}) | about
    path.write_text(json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False) + "\n")


def record_all(path):
    """Write the numbers of a run of `geomint reproduce`."""
    found = json.loads(Path(path).read_text())
    for row in found["experiments"]:
        record(row, found["machine"])


def rounded(number):
    return None if number is None else float(f"{number:.8g}")
