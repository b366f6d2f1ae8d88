"""The reference page: every public name with its signature and a table of its arguments.

Meanings of arguments come from docstrings, which state them as `name:  meaning` (those of base classes count too), and
from docs/arguments.toml for arguments that mean the same everywhere or need few words. An argument without a meaning,
and a public name in no section, are errors.
"""

import dataclasses
import functools
import inspect
import re
import textwrap
import tomllib
from pathlib import Path

import geomint as gm

NOTE = "<!-- Written by docs/generate.py; change docstrings, docs/arguments.toml or docs/reference_page.py. -->\n"
INTRODUCTION = """# Reference

Every public name, with its arguments. [All models](models.md) has the models, [All methods](methods.md) the traits of
all variants of the methods.
"""
# The order of the page. Methods and errors find their sections by themselves.
SECTIONS = {
    "Systems": ("System", "LagrangianSystem", "Translation", "Rotation", "Generator"),
    "Constraints": (
        *("Distances", "RigidMolecules", "OnSphere", "Orthogonal", "Constraint", "project"),
        *("penalize", "recover_multipliers"),
    ),
    "Constant temperature": ("fixman",),
    "Rotations and rigid bodies": (
        *("rigid.RigidBody", "rigid.Bodies", "rigid.SpatialRotation", "rigid.BodyRotation", "rigid.SpatialTranslation"),
        *("rigid.rotation", "rigid.from_quaternion", "rigid.to_quaternion", "rigid.nearest_rotation", "rigid.hat"),
        *("rigid.RigidPoses", "rigid.Space", "rigid.Flat", "rigid.SO3", "rigid.Poses", "rigid.SE3"),
        *("rigid.Product", "rigid.MatrixGroup"),
    ),
    "Joints and mechanisms": (
        *("rigid.Assembly", "rigid.Joint", "rigid.Ball", "rigid.Hinge", "rigid.Slider", "rigid.Cylindrical"),
        *("rigid.Universal", "rigid.Distance", "rigid.Weld", "rigid.MassProperties", "rigid.from_mjcf"),
        *("rigid.from_urdf",),
    ),
    "Many particles": (
        *("md.Box", "md.PairPotential", "md.PairSum", "md.Neighbours", "md.NeighbourList", "md.Atoms", "from_ase"),
    ),
    "Elastic solids": (
        *("fem.solid", "fem.Mesh", "fem.cube", "fem.box", "fem.ball", "fem.NeoHookean", "fem.StVenantKirchhoff"),
        *("fem.LinearElastic", "fem.Material", "fem.lame_constants", "fem.determinant", "fem.consistent_mass"),
        *("fem.Elastic", "fem.ExactContact", "fem.PenaltyContact", "fem.BarrierContact", "fem.with_contact"),
        *("fem.watch_bodies", "fem.collision", "fem.Collision"),
    ),
    "Units": ("units.UnitSystem", "units.all", "units.named"),
    "Fast and slow parts": ("split_quadratic", "watch_oscillations", "adaptive_splitting"),
    "Runs": ("simulate", "ensemble", "sweep", "load", "resume", "Trajectory"),
    "Reductions over members": ("Mean", "Quantiles", "Histogram", "RadialDistribution"),
    "Statistics of runs": (
        *("average", "Average", "autocorrelation_time", "energy_drift", "EnergyDrift", "degrees_of_freedom"),
        *("temperature_distribution", "TemperatureDistribution", "radial_distribution"),
    ),
    "Certificates": ("certify", "Certificate", "stability_diagram", "StabilityDiagram"),
    "Comparisons of methods": ("compare", "Comparison", "recommend", "Recommendation"),
    "Kinds of motion": ("section", "Section", "lyapunov", "Lyapunov"),
    "Animations": ("view.Scene", "view.Page"),
    "Methods": (),
    "Methods by name": ("methods.all", "methods.classes", "methods.named", "methods.as_method"),
    "Models by name": ("models.Model", "models.all", "models.named", "models.model"),
    "For those who add methods": (
        *("methods.Method", "methods.Traits", "methods.State", "methods.Carry", "methods.register"),
        *("methods.KickDrift", "methods.Filtered", "Mechanics"),
    ),
    "Tables": ("methods.TABLES", "methods.SCHEMES", "methods.FILTERS", "methods.KINDS"),
    "Systems of units": ("units.EV", "units.KCAL", "units.KJ", "units.REDUCED", "units.SI"),
    "Errors": (),
}
# Made by geomint, not by users: their docstrings say what they hold, and their arguments are not listed.
MADE_BY_GEOMINT = {
    *("Trajectory", "Average", "EnergyDrift", "TemperatureDistribution", "Certificate", "StabilityDiagram"),
    *("md.NeighbourList", "md.PairSum", "fem.Elastic", "fem.Collision", "methods.Carry", "Mechanics"),
    *("Comparison", "Recommendation", "Section", "Lyapunov", "view.Page"),
}
# Of these classes only some members are for users; of all others, those that the class itself defines.
MEMBERS = {
    "System": ("with_params", "named_symmetries"),
    "LagrangianSystem": ("with_params", "named_symmetries"),
    "Distances": ("measured",),
    "md.Neighbours": (),
    "fem.Elastic": ("positions",),
    **dict.fromkeys(("fem.NeoHookean", "fem.StVenantKirchhoff", "fem.LinearElastic"), ()),
    "md.PairPotential": ("neighbours",),
    "units.UnitSystem": ("time", "boltzmann", "coulomb", "kT", "temperature", "convert", "size"),
    "md.PairSum": ("neighbours",),
    "methods.Method": ("traits", "init", "step", "output", "name", "check"),
    **dict.fromkeys(("Translation", "Rotation", "Generator", "OnSphere", "Orthogonal"), ()),
    **dict.fromkeys(("rigid.Space", "rigid.Flat", "rigid.SO3", "rigid.Poses", "rigid.SE3", "rigid.Product"), ()),
    **dict.fromkeys(("rigid.MatrixGroup", "rigid.RigidPoses", "rigid.SpatialTranslation"), ()),
    **dict.fromkeys(("rigid.SpatialRotation", "rigid.BodyRotation"), ()),
    "rigid.RigidBody": ("system", "state"),
    "rigid.Bodies": ("system",),
    **dict.fromkeys(("rigid.Joint", "rigid.Ball", "rigid.Hinge", "rigid.Slider", "rigid.Cylindrical"), ()),
    **dict.fromkeys(("rigid.Universal", "rigid.Distance", "rigid.Weld"), ()),
    **dict.fromkeys(("Mean", "Quantiles", "Histogram", "RadialDistribution"), ()),
}
FOR_USERS_TO_WRITE = {
    "methods.Method",
    "Constraint",
    "fem.Material",
    "rigid.Space",
}  # subclasses have their own arguments
ENTRY = re.compile(r"^([A-Za-z_]\w*(?:(?:, | or )[A-Za-z_]\w*)*):( +)(\S.*)$")


def public_names():
    """Every public name without `gm.`, and what it is; a method of gm.methods is listed as that of gm."""
    names = {name: getattr(gm, name) for name in gm.__all__ if not inspect.ismodule(getattr(gm, name))}
    for module in ("fem", "md", "methods", "models", "rigid", "units", "view"):
        inside = getattr(gm, module)
        listed = [name for name in inside.__all__ if not inspect.ismodule(getattr(inside, name))]
        named = {f"{module}.{name}": getattr(inside, name) for name in listed}
        names |= {name: x for name, x in named.items() if not any(x is y for y in names.values())}
    return names


def sections():
    """Title and names of every section."""
    left, out = public_names(), {}
    models = {f"models.{name}" for name in gm.models.all()}
    is_error = lambda x: inspect.isclass(x) and issubclass(x, BaseException)
    found = {
        "Methods": [cls.__name__ for cls in gm.methods.classes().values()],
        "Errors": [name for name, x in left.items() if is_error(x)],
    }
    for title, names in SECTIONS.items():
        out[title] = [*names, *found.get(title, ())]
    placed = [name for names in out.values() for name in names]
    if wrong := (left.keys() ^ set(placed)) - models:
        raise SystemExit(f"docs/reference_page.py: no section, or no public name: {', '.join(sorted(wrong))}")
    return out


@functools.cache
def stated_meanings():
    """The tables of docs/arguments.toml."""
    return tomllib.loads((Path(__file__).parent / "arguments.toml").read_text())


def divided(doc, names):
    """A docstring as the meanings of its arguments, and the lines of all else."""
    meanings, rest, lines = {}, [], (doc or "").splitlines()
    while lines:
        match = ENTRY.match(lines[0])
        listed = re.split(", | or ", match[1]) if match else []
        if not match or not set(listed) <= set(names):
            rest.append(lines.pop(0))
            continue
        lines.pop(0)
        text = [match[3]]
        # Aligned entries go on with indented lines; others up to the next entry or an empty line.
        free = len(match[2]) == 1 and bool(lines) and not lines[0].startswith("  ")
        while lines and lines[0].strip() and not ENTRY.match(lines[0]) and (free or lines[0].startswith("  ")):
            text.append(lines.pop(0).strip())
        meanings |= dict.fromkeys(listed, " ".join(text))
    return meanings, rest


def as_markdown(lines):
    """Lines of a docstring as Markdown. Indented and aligned ones are shown as they are."""
    parts = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if not block.strip():
            continue
        aligned = block.startswith("    ") or re.search(r"\S {3,}\S", block)
        parts.append(f"```\n{textwrap.dedent(block)}\n```" if aligned else escaped(block))
    return "\n\n".join(parts) + "\n\n" if parts else ""


def escaped(text):
    """Text outside of `code`, without characters that Markdown would take for markup."""
    pieces = text.split("`")
    pieces[::2] = [piece.replace("*", r"\*").replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)


def parameters(x):
    """The parameters of a function or class; none where Python knows no signature."""
    try:
        found = list(inspect.signature(x).parameters.values())
    except (TypeError, ValueError):
        return []
    # A default that a dataclass makes anew for each object, such as {}.
    fields = dataclasses.fields(x) if dataclasses.is_dataclass(x) else ()
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return [p.replace(default=made[p.name]) if p.name in made else p for p in found]


def default(parameter):
    if parameter.default is parameter.empty:
        return ""
    if callable(parameter.default):
        return getattr(parameter.default, "__name__", "default")
    return repr(parameter.default)


def signature(name, x):
    """The call, over several lines where it is long."""
    arguments, star = [], False
    for p in parameters(x):
        if p.kind == p.KEYWORD_ONLY and not star:
            arguments.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        arguments.append(f"{mark}{p.name}" + (f"={default(p)}" if p.default is not p.empty else ""))
    call = f"gm.{name}({', '.join(arguments)})"
    return textwrap.fill(call, 88, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def meanings_of(name, x):
    """The meaning of every argument: of its own docstring, of those of base classes, or of docs/arguments.toml."""
    names = [p.name for p in parameters(x)]
    docs = [base.__doc__ for base in x.__mro__ if base.__module__.startswith("geomint")] if inspect.isclass(x) else []
    found = {}
    for doc in reversed(docs or [x.__doc__]):
        found |= divided(inspect.cleandoc(doc or ""), names)[0]
    table = stated_meanings()
    own, kind = table.get(name, {}), "calls"
    if inspect.isclass(x) and issubclass(x, gm.methods.Method):
        kind = "methods"
    elif name.removeprefix("models.") in gm.models.all():
        kind = "models"
    found = {**table["common"][kind], **found, **own}
    if missing := [n for n in names if n not in found]:
        raise SystemExit(f"gm.{name} has arguments without a meaning: {', '.join(missing)} (docs/arguments.toml)")
    return {n: found[n] for n in names}


def argument_table(name, x):
    """The arguments, their defaults and meanings."""
    given = parameters(x)
    if not given:
        return ""
    cell = lambda text: escaped(text).replace("|", r"\|")
    meanings = meanings_of(name, x)
    rows = [
        f"| `{p.name}` | {f'`{default(p)}`' if default(p) else ''} | {cell(meanings[p.name])} |".replace("|  |", "| |")
        for p in given
    ]
    return "\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows]) + "\n\n"


def members(path, x):
    """Public properties and functions of a class, with the first paragraph of their docstrings."""
    rows = []
    for name in MEMBERS.get(path, vars(x)):
        member = inspect.getattr_static(x, name)
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        doc = inspect.getdoc(function) if callable(function) else None
        if name.startswith("_") or not doc:
            continue
        call = ""
        if not isinstance(member, property):
            given = [p.name for p in parameters(function) if p.name not in ("self", "cls")]
            call = f"({', '.join(given)})"
        text = " ".join(re.split(r"\n\s*\n", doc)[0].split())
        rows.append(f"| `{name}{call}` | {escaped(text).replace('|', chr(92) + '|')} |")
    return "\n".join(["| member | |", "| --- | --- |", *rows]) + "\n\n" if rows else ""


def entry(name, x):
    """One public name."""
    if not callable(x):
        return f"### gm.{name}\n\n{stated_meanings()['tables'][name]}\n\n"
    is_error = inspect.isclass(x) and issubclass(x, BaseException)
    listed = not is_error and name not in MADE_BY_GEOMINT | FOR_USERS_TO_WRITE
    doc = inspect.getdoc(x) if name != "methods.Carry" else stated_meanings()["tables"][name]
    names = [p.name for p in parameters(x)] if listed else []
    head = f"### gm.{name}\n\n" + (f"```\n{signature(name, x)}\n```\n\n" if listed else "")
    text = as_markdown(divided(doc, names)[1])
    shown = inspect.isclass(x) and not (issubclass(x, gm.methods.Method) and name != "methods.Method")
    return head + text + (argument_table(name, x) if listed else "") + (members(name, x) if shown else "")


def of_model(name, make):
    """A model: its call, its docstring and its arguments."""
    call, path = signature(f"models.{name}", make), f"models.{name}"
    text = as_markdown(divided(inspect.getdoc(make), [p.name for p in parameters(make)])[1])
    return f"```\n{call}\n```\n\n{text}{argument_table(path, make)}".rstrip("\n") + "\n"


def page():
    names = public_names()
    parts = [NOTE, INTRODUCTION]
    for title, listed in sections().items():
        parts += [f"## {title}\n", *(entry(name, names[name]) for name in listed)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)
