"""The tutorials: notebooks in docs/tutorials, stored with their outputs.

python docs/notebooks.py            executes them all and stores what they print and draw
python docs/notebooks.py kepler     executes docs/tutorials/kepler.ipynb

Cells are executed here without Jupyter: in one namespace, in an empty folder; the value of a last expression is shown,
and so are figures of matplotlib.pyplot. The notebook keeps a hash of its code, so that a test finds outputs of code
that has changed since.

mkdocs calls `on_files` and `on_page_markdown` (hooks in mkdocs.yml), which make a page of each notebook.
"""

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path

TUTORIALS = Path(__file__).parent / "tutorials"
COLOURS = 64  # of a stored picture
WIDTH = 900  # pixels at most


def load(path):
    return json.loads(Path(path).read_text())


def source(cell):
    """The text of a cell, which the format allows to be a list of lines."""
    return "".join(cell["source"])


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def fingerprint(notebook):
    """A hash of all code."""
    return hashlib.sha256("\0".join(map(source, code_cells(notebook))).encode()).hexdigest()[:16]


# --- execution --------------------------------------------------------------------------------------------------------
def execute(notebook, name="notebook"):
    """Yield (cell, what it printed, what it showed) for each code cell, in order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    namespace = {"__name__": name}
    for number, cell in enumerate(code_cells(notebook), 1):
        tree = ast.parse(source(cell), f"{name}, code cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, shown = io.StringIO(), []
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{name}, code cell {number}", "exec"), namespace)
            if last is not None:  # not shown where a semicolon ends the cell, as in Jupyter
                expression = ast.Expression(last.value)
                value = eval(compile(expression, f"{name}, code cell {number}", "eval"), namespace)
                shown = [] if value is None or source(cell).rstrip().endswith(";") else [value]
        shown += [plt.figure(n) for n in plt.get_fignums() if plt.figure(n) not in shown]
        yield cell, printed.getvalue(), shown
        plt.close("all")


def png(figure):
    """A small picture of a figure."""
    from PIL import Image

    written = io.BytesIO()
    figure.savefig(written, dpi=min(100, WIDTH / figure.get_figwidth()), format="png")
    small = Image.open(written).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    small.save(out, "png", optimize=True)
    return out.getvalue()


def outputs(printed, shown):
    """The outputs of a cell in the format of notebooks."""
    from matplotlib.figure import Figure

    found = []
    if printed:
        found.append({"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)})
    for value in shown:
        data = {"text/plain": [repr(value)]}
        if isinstance(value, Figure):
            data = {"image/png": base64.b64encode(png(value)).decode() + "\n", "text/plain": ["<figure>"]}
        found.append({"output_type": "display_data", "metadata": {}, "data": data})
    return found


def store_outputs(path):
    """Execute a notebook and write it back with its outputs."""
    path, notebook = path.resolve(), load(path)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for count, (cell, printed, shown) in enumerate(execute(notebook, path.stem), 1):
            cell["outputs"], cell["execution_count"] = outputs(printed, shown), count
    notebook["metadata"]["executed"] = fingerprint(notebook)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


# --- pages ------------------------------------------------------------------------------------------------------------
def page(notebook, name):
    """The notebook as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", source(cell)))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What the code above draws]({file})")
            else:
                text = "".join(output.get("text") or data["text/plain"]).rstrip("\n")
                parts.append(f"``` {{ .text .output }}\n{text}\n```")
    return "\n\n".join([*parts, f"[This page as a notebook]({name}.ipynb)"]) + "\n", pictures


def on_files(files, config):
    """mkdocs: add a page, and its pictures, for each notebook."""
    from mkdocs.structure.files import File

    for path in sorted(TUTORIALS.glob("*.ipynb")):
        text, pictures = page(load(path), path.stem)
        for name, content in ((f"{path.stem}.md", text), *pictures.items()):
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """mkdocs: links to notebooks lead to their pages."""
    return re.sub(r"\]\(((?:\.\./)?tutorials/[\w-]+)\.ipynb\)", r"](\1.md)", markdown)


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in sys.argv[1:] or [path.stem for path in sorted(TUTORIALS.glob("*.ipynb"))]:
        store_outputs(TUTORIALS / f"{name}.ipynb")
        print(f"executed: docs/tutorials/{name}.ipynb")
