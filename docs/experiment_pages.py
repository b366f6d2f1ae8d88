"""The parts of the pages that show experiments, from docs/results/PAPER.json: the gallery, the tables of checks at the
end of each paper's page, and what the papers get wrong.

`results` maps papers to their experiments, in the order of the paper, and these to what docs/figures.py has recorded.
Rows of older files have a claim and a number only; columns that are empty for all rows of a table are left out.
"""

import dataclasses
import json
import math
import re
import unicodedata
from pathlib import Path

from geomint import papers

ROOT = Path(__file__).parents[1]
NAMES = {
    "console-hairer-lubich-2013": "Console, Hairer, Lubich (2013)",
    "fernandez-pendas-2019": "Fernández-Pendás (2019)",
    "gonzalez-schmidt-ortiz-2010": "Gonzalez, Schmidt, Ortiz (2010)",
    "stern-grinspun-2009": "Stern, Grinspun (2009)",
    "tao-owhadi-2015": "Tao, Owhadi (2015)",
}
VERDICTS = ("reproduced", "corrected", "contradicted", "chaotic", "information")
HEADING = re.compile(r"^#{2,4} +(.*)$", re.M)
CODE = re.compile(r"^```.*?^```", re.M | re.S)


@dataclasses.dataclass
class Shown:
    """One experiment as the pages show it."""

    paper: str
    name: str
    title: str
    figure: str
    rows: list

    @property
    def image(self):
        return f"images/{self.paper.partition('-')[0]}-{self.name}.png"

    @property
    def counts(self):
        """How many rows have which verdict, in words."""
        verdicts = [verdict(row) for row in self.rows]
        found = [(v, verdicts.count(v)) for v in (*VERDICTS, "FAILED")]
        unknown = f"{len(self.rows)} number" + "s" * (len(self.rows) != 1)
        return ", ".join(f"{count} {v}" for v, count in found if count) or unknown


def verdict(row):
    """The verdict of a row; empty where none is recorded."""
    return "FAILED" if row.get("ok") is False else row.get("verdict") or ""


def recorded(root):
    """All experiments of docs/results, paper by paper, in the order of the paper; full size, where it is recorded."""
    registered = {e.paper: {} for e in papers.all()}
    for e in papers.all():
        registered[e.paper][e.name] = e
    found = {}
    for path in sorted((root / "docs/results").glob("*.json")):
        known, entries = registered.get(path.stem, {}), json.loads(path.read_text())
        order = [name for name in known if name in entries] + [name for name in entries if name not in known]
        found[path.stem] = [shown(path.stem, name, entries[name], known.get(name)) for name in order]
    return found


def shown(paper, name, entry, experiment):
    """An entry of docs/results; what it lacks is taken from the registry."""
    title = entry.get("title") or (experiment.title if experiment else name)
    figure = entry.get("figure") or (experiment.figure if experiment else "")
    return Shown(paper, name, title, figure, (entry.get("full") or entry.get("quick") or {}).get("checks", []))


# --- text -----------------------------------------------------------------------------------------------------------
def plain(text):
    """Text as Markdown shows it unchanged; `code` stays code."""
    pieces = str(text).split("`")
    pieces[::2] = [re.sub(r"([\\*_\[\]])", r"\\\1", piece).replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)


def number(x, digits=None):
    """A number with few digits: 0.015203, 39,232, 1.3e-14; "not finite" for null."""
    if x is None or not math.isfinite(x):
        return "not finite"
    digits = digits or (5 if 1e-3 <= abs(x) < 1e8 else 3)
    if 1e4 <= abs(x) < 1e6 or x == int(x):
        text = f"{x:,.0f}" if abs(x) < 1e8 else f"{x:.{digits}g}"
    else:
        text = f"{x:.{digits}g}"
    return re.sub(r"e([+-])0*(\d)", lambda m: "e" + m[1].replace("+", "") + m[2], text).replace("-", "−", x < 0)


def measured(row):
    """The number of a row, and its spread with two digits, to which the number is rounded too."""
    x, spread = row.get("measured"), row.get("spread")
    if x is None or not spread:
        return number(x)
    decimals = 1 - math.floor(math.log10(spread))
    if not -8 < decimals < 7:
        return f"{number(x)} ± {number(spread, 2)}"
    both = (f"{round(value, decimals):,.{max(decimals, 0)}f}" for value in (x, spread))
    return " ± ".join(both).replace("-", "−")


def stated(row):
    """What the paper says, and where, if a row says where."""
    paper, where = row.get("paper"), row.get("where")
    text = plain(paper) if isinstance(paper, str) else "" if paper is None else number(paper, 6)
    place = "" if not where else plain(where)
    if not text or not place:
        return text or place
    return f"{text}, {place}" if place.startswith("(") else f"{text} ({place})"


def interval(row):
    """The range of a row."""
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        return "" if low is high else f"≤ {number(high)}" if low is None else f"≥ {number(low)}"
    return f"= {number(low)}" if low == high else f"{number(low)} … {number(high)}"


COLUMNS = {
    "claim": lambda row: plain(row["claim"]),
    "the paper": stated,
    "measured": measured,
    "interval": interval,
    "verdict": verdict,
    "note": lambda row: plain(row.get("note") or ""),
}


def table(rows, columns):
    """A Markdown table of rows, without columns that are empty in all of them."""
    cells = {name: [COLUMNS[name](row).replace("|", r"\|") for row in rows] for name in columns}
    kept = [name for name in columns if any(cells[name])]
    centred = ("measured", "interval", "verdict")
    lines = [kept, [":-:" if name in centred else "---" for name in kept], *zip(*(cells[n] for n in kept), strict=True)]
    return "\n".join("| " + " | ".join(cell or "–" for cell in line) + " |" for line in lines) + "\n"


# --- where an experiment is described ---------------------------------------------------------------------------------
def slug(heading):
    """The anchor that mkdocs gives a heading."""
    text = unicodedata.normalize("NFKD", heading.replace("`", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def described(page, experiment):
    """(anchor of the section that shows the figure of an experiment, what the figure shows). The anchor is that of the
    checks where no section does, the text is then the title."""
    text = CODE.sub(lambda m: "\n" * m[0].count("\n"), page)
    picture = re.search(r"!\[([^\]]*)\]\(" + re.escape(experiment.image) + r"\)", text)
    headings = [m[1] for m in HEADING.finditer(text[: picture.start()])] if picture else []
    anchor = slug(headings[-1]) if headings else f"checks-{experiment.name}"
    return anchor, picture[1] if picture else experiment.title


# --- the pages --------------------------------------------------------------------------------------------------------
def checks_section(experiments):
    """The end of a paper's page: all rows of all its experiments, to be unfolded one by one."""
    parts = [
        "## All numbers\n",
        "Every row of every experiment at full size. *Reproduced*: the paper's statement holds. *Corrected*: the paper "
        "has a slip, and the number is that of the corrected form. *Contradicted*: the statement does not hold. "
        "*Chaotic*: an interval of many runs, where the paper shows one trajectory. *Information*: the paper says "
        "nothing of it.\n",
    ]
    for e in experiments:
        heading = " · ".join(part for part in (plain(e.title), plain(e.figure), e.counts) if part).replace('"', "”")
        rows = table(e.rows, ("claim", "the paper", "measured", "verdict", "note")) if e.rows else "No rows.\n"
        inside = "".join(f"    {line}\n" for line in rows.splitlines())
        parts.append(f'<a id="checks-{e.name}"></a>\n\n??? abstract "{heading}"\n\n{inside}')
    return "\n".join(parts)


def gallery(results, pages, root):
    """Cards with picture, title, place in the paper and verdicts; `pages` has the text of the papers' pages."""
    parts = []
    for paper, experiments in results.items():
        parts.append(f'## {NAMES.get(paper, paper)}\n\n<div class="gallery" markdown>\n')
        for e in experiments:
            anchor, seen = described(pages.get(paper, ""), e)
            place = f"{paper}.md#{anchor}"
            lines = [f"**[{plain(e.title)}]({place})**", f"{plain(e.figure)}: [{e.counts}]({paper}.md#checks-{e.name})"]
            if (root / "docs" / e.image).exists():
                lines.insert(0, f"[![{plain(seen)}]({e.image})]({place})")
            parts.append("<div markdown>\n\n" + "\n\n".join(lines) + "\n\n</div>\n")
        parts.append("</div>\n")
    return "\n".join(parts)


def corrections(results):
    """Statements of the papers that are corrected or contradicted, by paper, and chaotic ones after them."""
    verdicts = [verdict(row) for experiments in results.values() for e in experiments for row in e.rows]
    judged = ", ".join(f"{verdicts.count(v)} {v}" for v in VERDICTS[:-1])
    parts = [f"All rows that say something of a paper: {judged}. Several rows may measure one statement.\n"]
    for kinds, title, columns in (
        (("corrected", "contradicted"), "", ("claim", "the paper", "measured", "verdict", "note")),
        (("chaotic",), " Chaotic motions", ("claim", "the paper", "measured", "interval", "note")),
    ):
        if title:
            parts.append(f"##{title}\n\nOne trajectory of a chaotic motion shows nothing that a second one, started "
                         "1e-13 beside it, would repeat. These rows are statistics of many runs.\n")  # fmt: skip
        count = len(parts)
        for paper, experiments in results.items():
            rows = [row for e in experiments for row in at_home(e) if verdict(row) in kinds]
            if rows:
                level = "###" if title else "##"
                heading = f"{level} [{NAMES.get(paper, paper)}]({paper}.md)"
                parts.append(f'{heading}\n\n<div class="checks" markdown>\n\n{table(rows, columns)}\n</div>\n')
        if len(parts) == count:
            parts.append("No row of docs/results has this verdict.\n")
    return "\n".join(parts)


def at_home(experiment):
    """The rows of an experiment; those that do not say where in the paper have the place of the experiment."""
    return [row | {"where": row.get("where") or experiment.figure} for row in experiment.rows]
