"""`geomint report`: the papers' experiments as a folder of web pages that need no network.

`site` runs the experiments and writes the pages: `index_page` the start page, `experiment_page` the page of one
experiment, from the parts in `pieces`; `prose` makes HTML of docstrings and code; report.css and report.js are copied
into the folder, as is plotly.

`panels` makes interactive plots of a matplotlib figure, one for each Axes: `artists` and `areas` convert what is drawn
in it (`drawn` collects it), `axes` its axes, `legends` its legends, `space` what is three-dimensional; `looks` has
colours, dashes, markers and numbers. `plots` puts them on the page, with a picture of each panel that has no form in
plotly.
"""

from .panels import panels_of
from .site import Entry, write_index, write_pages

__all__ = ["Entry", "panels_of", "write_index", "write_pages"]
