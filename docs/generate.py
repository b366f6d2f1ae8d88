"""Write the generated parts of the documentation.

The table in README.md, docs/methods.md and docs/models.md come from the registries, docs/reference.md from docstrings
and signatures (docs/reference_page.py).
The numbers in the papers' pages come from docs/results (see `with_numbers`), which docs/figures.py writes when it
runs the experiments; so do the tables at their end, the gallery, and the page of what the papers get wrong
(docs/experiment_pages.py).

python docs/generate.py           writes them
python docs/generate.py --check   writes nothing; exits 1 and names the files that are out of date
"""

import contextlib
import re
import sys
from pathlib import Path

import experiment_pages
import reference_page

import geomint as gm

ROOT = Path(__file__).parents[1]
NOTE = (
    "---\nhide: [toc]\n---\n<!-- Written by docs/generate.py from the registry; change the code, not this page. -->\n"
)


def yes(x):
    return "yes" if x else "–"


def table(headings, rows):
    """A Markdown table; the first column is left-aligned, the others are centred."""
    lines = [headings, ("---", *(":-:" for _ in headings[1:])), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def order(traits):
    return f"weak {traits.weak_order}" if traits.stochastic else str(traits.order or "–")


def energy(traits):
    return "heat" if traits.stochastic else traits.energy or "drifts"


def by_class():
    """The registered variants of each class, in order of registration."""
    grouped = {}
    for method in gm.methods.all():
        grouped.setdefault(type(method), []).append(method)
    return grouped


def shared(variants, read):
    """One cell for all variants of a class: the values that occur, in order."""
    return ", ".join(dict.fromkeys(read(m.traits) for m in variants))


def readme_table():
    """One row for each class: short enough for the front page."""
    rows = [
        (
            f"`{cls.__name__}`",
            shared(variants, order),
            shared(variants, lambda t: yes(t.symplectic)),
            shared(variants, lambda t: yes(t.symmetric)),
            shared(variants, energy),
            shared(variants, lambda t: t.momentum_maps or "–"),
            shared(variants, lambda t: yes(t.constrained)),
            len(variants),
        )
        for cls, variants in by_class().items()
    ]
    return table(
        ("method", "order", "symplectic", "symmetric", "energy", "momentum maps", "constrained", "variants"), rows
    )


def methods_page():
    """Every registered method with all its traits."""
    rows = [
        (
            f"`{m.name}`",
            order(m.traits),
            yes(m.traits.symplectic),
            "–" if m.traits.steps > 1 else yes(m.traits.volume or m.traits.symplectic),
            yes(m.traits.symmetric),
            yes(m.traits.reversible),
            energy(m.traits),
            m.traits.momentum_maps or "–",
            yes(m.traits.constrained),
            ", ".join(m.traits.needs) or "–",
            m.traits.forces or "varies",
        )
        for m in gm.methods.all()
    ]
    headings = (
        "method", "order", "symplectic", "volume", "symmetric", "reversible", "energy", "momentum maps", "constrained",
        "needs", "forces a step",
    )  # fmt: skip
    schemes = "\n".join(f"- `{name}`: {source}." for name, (*_, source) in gm.methods.TABLES.items())
    return f"""{NOTE}
# All methods

Every claim in this table is measured by the property tests. Every property that is denied must fail on some problem.
Averages of the method with random numbers, `GeometricLangevin`, are measured by tests of its own.

{table(headings, rows)}
- **energy**: "bounded" means that the error oscillates and does not grow; "drifts" means that it grows;
  "heat" is exchanged at constant temperature, `run.heat`.
- **order**: "weak 2" is the order of the error of averages.
- **volume**: a step preserves the volume of phase space; "–": a multistep method, whose step is no map of it.
- **momentum maps**: conserved ones. "all": of all linear actions (momentum, angular momentum, `gm.Generator`);
  "linear": of translations only.
- **forces a step**: evaluations of the force, where the last one of a step is used again by the next. "varies": an
  implicit method iterates.

## What they take

{taken_table()}
- **V(q, t)**, **g(q, t)**: an energy, or a constraint, that depends on the time.
- **f(q, t)**, **f(q, v, t)**: forces, and forces that depend on the velocity. **damping**: the drag −D v.
- **B uniform**, **B(q, t)**: magnetic fields.
- **L(q, v)**: systems stated by a Lagrangian.
- **lists**: neighbour lists, `System(auxiliary=…)`.
- "some": only some variants; the error of the others names methods that do. `Composition` takes what its base takes.

## The splittings and their sources

{schemes}
"""


def accepts(method, **parts):
    """Whether a method accepts a system with these parts, free or constrained."""
    fast = {"fast": lambda q: 0.5 * q @ q} if any("fast" in need for need in method.traits.needs) else {}
    held = parts.pop("constraint", None)
    if "lagrangian" in parts:
        systems = [gm.LagrangianSystem(**parts)]
    else:
        free = {"potential": lambda q: q @ q, **fast, **parts}
        systems = [gm.System(**free, constraint=held or (lambda q: q[:1]))] + [gm.System(**free)] * (held is None)
    for system in systems:
        with contextlib.suppress(gm.InputError):
            method.check(system)
            return True
    return False


def taken_table():
    """What systems may have besides an energy of q, for each class: "some" where not all its variants accept it."""
    pair = gm.md.PairPotential(lambda r: r, cutoff=1.0)
    asked = {
        "V(q, t)": {"potential": lambda q, t: t * q @ q},
        "g(q, t)": {"constraint": lambda q, t: q[:1] - t},
        "f(q, t)": {"force": lambda q, t: t * q},
        "f(q, v, t)": {"force": lambda q, v, t: -v},
        "damping": {"damping": 1.0},
        "B uniform": {"magnetic_field": 1.0},
        "B(q, t)": {"magnetic_field": lambda q: q},
        "L(q, v)": {"lagrangian": lambda q, v: v @ v - q @ q},
        "lists": {"potential": pair, "auxiliary": pair.neighbours(0.3)},
    }

    def cell(variants, parts):
        found = {accepts(m, **parts) for m in variants}
        return "some" if len(found) == 2 else yes(found.pop())

    rows = [(f"`{cls.__name__}`", *(cell(v, parts) for parts in asked.values())) for cls, v in by_class().items()]
    return table(("method", *asked), rows)


def models_page():
    """Every model, its arguments and its formula."""
    parts = [
        f"{NOTE}\n# All models\n\nA model is a system with initial data: `model = gm.models.kepler()`, then "
        "`model.system`, `model.q0`, `model.v0`. It has a method, a step and an end that work, `model.method`, "
        "`model.dt` and `model.t_end`, the defaults of `gm.simulate(model)`, `gm.ensemble(model, …)`, "
        "`gm.sweep(model, …)`, `gm.certify(model)` and `geomint run kepler`.\n"
    ]
    models = {name: make() for name, make in gm.models.all().items()}
    rows = [
        (
            f"[`{name}`](#{name})",
            model.description,
            " × ".join(map(str, model.q0.shape)),
            f"`{model.method.name}`",
            f"{model.dt:.4g}",
            f"{model.t_end:.6g}",
        )
        for name, model in models.items()
    ]
    parts.append(table(("model", "what it is", "shape of q", "method", "dt", "t_end"), rows))
    for name, make in gm.models.all().items():
        parts.append(f"## {name}\n\n{reference_page.of_model(name, make)}")
    return "\n".join(parts)


def between_markers(page, kind, text):
    """The page with `text` between its markers <!-- KIND:begin --> and <!-- KIND:end -->."""
    begin, end = f"<!-- {kind}:begin -->", f"<!-- {kind}:end -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"a page has no markers {begin} and {end}: it begins with {page[:60]!r}")
    return f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}"


# A number that an experiment measured, and a comment that says which: 0.094<!--=double-pendulum: Z&S: largest error-->
MEASURED = re.compile(
    r"(?P<number>[−-]?\d[\d,]*(?:\.\d+)?(?:e[−+-]?\d+)?)(?P<percent> %)?<!--=(?P<experiment>[^:>]+): (?P<row>[^>]+)-->"
)


def with_numbers(text, results):
    """The page of a paper with every number before a comment `<!--=EXPERIMENT: ROW-->` replaced by the measured one.

    `results` has the numbers of the paper at full size, by experiment and row. ROW is the name of the row without its
    vertical bars, which would end a cell of a table. `…` in it matches any text, and the end of the name may be left
    out. The number keeps its form: decimals, exponent, per cent.
    """

    def one(match):
        experiment, row = match["experiment"], match["row"]
        if experiment not in results:
            raise SystemExit(f"docs/results has no experiment {experiment!r}, which a page refers to.")
        return (
            as_written(match["number"], row_value(results[experiment], row), match["percent"] or "")
            + match[0][match[0].index("<!--") :]
        )

    return MEASURED.sub(one, text)


def row_value(rows, name):
    """The number of the row whose name is, or begins with, `name`."""
    plain = {key.replace("|", ""): value for key, value in rows.items()}
    pattern = re.compile(".*".join(re.escape(part) for part in name.split("…")))
    found = [key for key in plain if pattern.fullmatch(key)] or [key for key in plain if pattern.match(key)]
    if len(found) != 1:
        raise SystemExit(f"{name!r} names {len(found)} rows of an experiment in docs/results: {found or list(plain)}")
    return plain[found[0]]


def as_written(old, value, percent):
    """`value` in the form of the number `old`."""
    value, decimals = (100 * value if percent else value), len(old.partition("e")[0].partition(".")[2])
    if "e" not in old and value and float(f"{value:.{decimals}f}") != 0:
        text = f"{value:,.{decimals}f}" if abs(value) >= 10_000 else f"{value:.{decimals}f}"
    elif value:
        mantissa, exponent = f"{value:.{decimals if 'e' in old else 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = "0"
    return text.replace("-", "−", 1) + percent if value < 0 else text + percent


def paper_pages():
    """The pages of the papers, each named as its paper, and those that show experiments of all papers."""
    docs, shown = ROOT / "docs", experiment_pages.recorded(ROOT)
    texts = {
        paper: between_markers(
            with_numbers((docs / f"{paper}.md").read_text(), numbers(experiments)),
            "checks",
            experiment_pages.checks_section(experiments),
        )
        for paper, experiments in shown.items()
        if (docs / f"{paper}.md").exists()
    }
    of_all = {
        "gallery": experiment_pages.gallery(shown, texts, ROOT),
        "corrections": experiment_pages.corrections(shown),
    }
    for kind, text in of_all.items():
        if (docs / f"{kind}.md").exists():
            texts[kind] = between_markers((docs / f"{kind}.md").read_text(), kind, text)
    return {docs / f"{name}.md": text for name, text in texts.items()}


def numbers(experiments):
    """The measured numbers of the experiments of a paper, by experiment and claim."""
    return {e.name: {row["claim"]: row.get("measured") for row in e.rows} for e in experiments}


def pages():
    """Path and content of everything that is generated."""
    readme = ROOT / "README.md"
    return paper_pages() | {
        readme: between_markers(readme.read_text(), "methods", readme_table()),
        ROOT / "docs/reference.md": reference_page.page(),
        ROOT / "docs/methods.md": methods_page(),
        ROOT / "docs/models.md": models_page(),
    }


def main(check):
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(pages()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
