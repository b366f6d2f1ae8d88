"use strict";
// Draws the plots of an experiment's page with plotly, and filters the claims of the start page.
const darkness = matchMedia("(prefers-color-scheme: dark)"), touch = !matchMedia("(hover: hover)").matches;
document.documentElement.classList.toggle("touch", touch);
const token = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Colours of the figures are made for white paper. On a dark page greys are turned round, and dark colours lightened.
function parsed(color) {
  if (/^#[0-9a-f]{6}$/i.test(color)) return [1, 3, 5].map(k => parseInt(color.slice(k, k + 2), 16)).concat(1);
  const found = /^rgba?\(([^)]*)\)$/.exec(color);
  return found ? found[1].split(",").map(Number).concat(1).slice(0, 4) : null;
}
function themed(color) {
  const parts = typeof color === "string" && darkness.matches ? parsed(color) : null;
  if (!parts) return color;
  let [r, g, b] = parts;
  if (Math.max(r, g, b) - Math.min(r, g, b) < 24) [r, g, b] = [r, g, b].map(c => 28 + (255 - c) * 0.8);
  else {
    const light = 0.2126 * r + 0.7152 * g + 0.0722 * b, least = 105;
    if (light < least) { const w = (least - light) / (255 - light); [r, g, b] = [r, g, b].map(c => c + w * (255 - c)); }
  }
  return `rgba(${[r, g, b].map(Math.round).join(",")},${parts[3]})`;
}
const TONES = new Set(["color", "fillcolor", "arrowcolor", "bgcolor", "bordercolor"]);
function recoloured(node) { // the colours of a trace or a layout, at any depth
  for (const [key, value] of Object.entries(node)) {
    if (key === "colorscale" || key === "bdata") continue;
    if (TONES.has(key) && typeof value === "string") node[key] = themed(value);
    else if ((TONES.has(key) || key === "facecolor") && Array.isArray(value)) node[key] = value.map(themed);
    else if (value && typeof value === "object") recoloured(value);
  }
  return node;
}

function axisStyle() {
  const line = token("--line-strong");
  return {
    gridcolor: token("--grid"), zeroline: false, showline: true, mirror: true, linecolor: line, tickcolor: line,
    ticks: "outside", ticklen: 4, automargin: true, exponentformat: "power", minexponent: 4,
  };
}
function dressed(plot) { // a panel with the style of the site
  const layout = plot.layout;
  for (const key of Object.keys(layout).filter(k => /^[xy]axis\d*$/.test(k))) {
    const own = layout[key];
    layout[key] = { ...axisStyle(), ...own, title: { standoff: 8, ...own.title } };
    if (own.type === "log" && !own.tickvals) { // whole decades; within one or two also 2 and 5
      const decades = Math.abs(own.range[1] - own.range[0]);
      layout[key].dtick = decades <= 2 ? "D2" : Math.max(1, Math.ceil(decades / 7));
    }
  }
  if (layout.scene) for (const k of "xyz") {
    const grid = token("--line-strong");
    Object.assign(layout.scene[k + "axis"], { gridcolor: grid, linecolor: grid, zeroline: false, showbackground: false, nticks: 4 });
  }
  const spare = touch ? 32 : 8; // where nothing hovers, the buttons stay and lie above the plot
  Object.assign(layout, {
    font: { family: token("--font"), size: 12, color: token("--ink") }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: token("--sky"), margin: layout.scene ? { l: 0, r: 0, t: 0, b: 0 } : { l: 8, r: 14, t: spare, b: 8 },
    showlegend: false, hovermode: "closest", dragmode: layout.scene ? "turntable" : touch ? false : "zoom", autosize: true,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: token("--soft"), activecolor: token("--accent") },
    hoverlabel: { bgcolor: token("--paper"), bordercolor: token("--line-strong"), font: { color: token("--ink"), family: token("--font") } },
  });
  for (const trace of plot.data) {
    if (trace.fill && trace.mode === "lines") trace.hoverinfo = "skip";
    else if (trace.type === "scatter") trace.hovertemplate = `%{x:.6~g}, %{y:.6~g}<extra>${trace.name}</extra>`;
    else if (trace.type === "heatmap") trace.hovertemplate = "%{x:.5~g}, %{y:.5~g}: %{z:.5~g}<extra></extra>";
    if (trace.type === "mesh3d") Object.assign(trace, { hoverinfo: "skip", lighting: { ambient: .7, diffuse: .6, specular: .05 } });
  }
  return plot;
}
const buttons = plot => plot.layout.scene ? [["tableRotation", "pan3d", "resetCameraDefault3d"], ["toImage"]]
  : [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]];
const config = plot => ({
  displaylogo: false, responsive: true, displayModeBar: touch ? true : "hover", doubleClick: "reset",
  modeBarButtons: buttons(plot), showSendToCloud: false, plotlyServerURL: "",
});

const kept = document.querySelector("script#plot-data");
const fresh = () => kept ? JSON.parse(kept.textContent) : { panels: [], legend: [] };
const shown = new Map(); // panel → its element
let drawable = null;
function webgl() {
  try { drawable ??= Boolean(document.createElement("canvas").getContext("webgl")); } catch { drawable = false; }
  return drawable;
}
async function draw(number) {
  const element = document.getElementById("plot-" + number), plot = dressed(recoloured(fresh().panels[number]));
  if (plot.layout.scene && !webgl()) {
    const still = Object.assign(new Image(), { src: element.dataset.still, alt: element.getAttribute("aria-label"), className: "still" });
    element.closest(".plot").replaceWith(still);
    return;
  }
  const before = shown.get(number);
  if (before) plot.data.forEach((trace, k) => { if (before.data[k].visible !== undefined) trace.visible = before.data[k].visible; });
  await (before ? Plotly.react : Plotly.newPlot)(element, plot.data, plot.layout, config(plot));
  if (!before) element.on("plotly_relayout", change => follow(number, change));
  shown.set(number, element);
}
// Panels that share an axis are zoomed together.
let following = false;
async function follow(number, change) {
  if (following) return;
  following = true;
  try {
    for (const name of ["x", "y"]) {
      if (!Object.keys(change).some(key => key.startsWith(name + "axis."))) continue;
      const range = [...shown.get(number).layout[name + "axis"].range];
      for (const [other, element] of shown)
        if (other !== number && links[other] && links[other][name] !== undefined && links[other][name] === links[number][name])
          await Plotly.relayout(element, { [name + "axis.range"]: [...range] });
    }
  } finally { following = false; }
}

// Legends are buttons beside the plots: they wrap on a phone, and a press shows or hides what they name.
const SVG = "http://www.w3.org/2000/svg";
const shapes = {
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z", square: "M-3.5-3.5h7v7h-7Z", diamond: "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
  "triangle-up": "M0-4.2L4.2 3.4H-4.2Z", "triangle-down": "M0 4.2L4.2-3.4H-4.2Z", x: "M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5",
  cross: "M0-4V4M-4 0H4", star: "M0-5L1.5-1.5H5L2.2.8L3.2 4.5L0 2.3L-3.2 4.5L-2.2.8L-5-1.5H-1.5Z",
};
const dashes = { dash: "6 3", dot: "1.5 2.5", dashdot: "6 2.5 1.5 2.5" };
function sampleOf({ line, marker, fill }) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "-14 -7 28 14"); svg.setAttribute("width", 28); svg.setAttribute("height", 14); svg.setAttribute("aria-hidden", "true");
  const add = (d, attributes) => {
    const path = document.createElementNS(SVG, "path");
    for (const [key, value] of Object.entries({ d, fill: "none", ...attributes })) path.setAttribute(key, value);
    svg.append(path);
  };
  if (fill) add("M-12-5h24v10h-24Z", { fill: themed(fill) });
  if (line) add("M-13 0H13", { stroke: themed(line.color), "stroke-width": Math.min(3.5, Math.max(1.3, line.width)), "stroke-dasharray": dashes[line.dash] || (/px/.test(line.dash) ? line.dash.replace(/px/g, "") : "") });
  if (marker) {
    const tone = themed(marker.color), open = /-open$/.test(marker.symbol), name = marker.symbol.replace(/-(thin|tall|open)/g, "");
    add(shapes[name] || shapes.circle, open || name === "x" || name === "cross" ? { stroke: tone, "stroke-width": 1.6 } : { fill: tone });
  }
  return svg;
}
function buildLegends() {
  const all = fresh();
  for (const box of document.querySelectorAll("[data-legend]")) {
    const own = box.dataset.legend === "figure" ? all : all.panels[Number(box.dataset.legend)];
    const pressed = [...box.querySelectorAll("button")].map(button => button.getAttribute("aria-pressed"));
    box.replaceChildren();
    if (own.legendTitle) { const title = document.createElement("span"); title.innerHTML = own.legendTitle; box.append(title); }
    own.legend.forEach((entry, k) => {
      const item = document.createElement(entry.parts.length ? "button" : "span"), text = document.createElement("span");
      text.innerHTML = entry.name;
      item.append(sampleOf(entry.sample), text);
      if (entry.parts.length) {
        item.type = "button"; item.title = "show or hide";
        item.setAttribute("aria-pressed", pressed[k] || "true");
        item.addEventListener("click", () => toggle(item, entry.parts));
      }
      box.append(item);
    });
  }
}
async function toggle(button, parts) {
  const visible = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", visible);
  for (const number of new Set(parts.map(([panel]) => panel))) {
    if (!shown.has(number)) await draw(number);
    if (!shown.has(number)) continue;
    const own = parts.filter(([panel]) => panel === number), element = shown.get(number);
    const traces = own.filter(([, kind]) => kind === "trace").map(([, , k]) => k);
    if (traces.length) await Plotly.restyle(element, { visible }, traces);
    const moved = Object.fromEntries(own.filter(([, kind]) => kind === "shape").map(([, , k]) => [`shapes[${k}].visible`, visible]));
    if (Object.keys(moved).length) await Plotly.relayout(element, moved);
  }
}
const links = fresh().panels.map(panel => panel && panel.linked);
if (kept) {
  buildLegends();
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(Number(entry.target.id.slice(5))); }
  }, { rootMargin: "400px" });
  document.querySelectorAll(".plot > div").forEach(element => seen.observe(element));
  darkness.addEventListener("change", () => { buildLegends(); [...shown.keys()].forEach(draw); });
  addEventListener("beforeprint", () => links.forEach((panel, k) => { if (panel && !shown.has(k)) draw(k); }));
}

// The filters of the start page. The rows of an experiment fold away, on a phone from the start.
const form = document.getElementById("filters"), narrow = matchMedia("(max-width: 760px)").matches;
const bodies = [...document.querySelectorAll("#claims tbody")];
function fold(body, open) {
  body.querySelector(".group button").setAttribute("aria-expanded", open);
  for (const row of body.querySelectorAll("tr.row")) row.hidden = !open || row.dataset.out === "1";
}
function filter() {
  const data = new FormData(form), paper = data.get("paper"), wanted = new Set(data.getAll("verdict"));
  const words = data.get("words").toLowerCase().split(/\s+/).filter(Boolean), free = !paper && !wanted.size && !words.length;
  const match = (own, text) => own.some(v => !wanted.size || wanted.has(v)) && words.every(word => text.includes(word));
  let count = 0;
  for (const body of bodies) {
    let any = 0;
    for (const row of body.querySelectorAll("tr.row")) {
      const good = (!paper || body.dataset.paper === paper) && match([row.dataset.verdict], row.dataset.words + " " + row.textContent.toLowerCase());
      row.dataset.out = good ? "0" : "1"; any += good;
    }
    body.hidden = !any; count += any;
    body.querySelector(".group button span").textContent = any;
    fold(body, !narrow || !free);
  }
  for (const section of document.querySelectorAll("section.paper")) {
    let any = false;
    for (const card of section.querySelectorAll(".card")) {
      const good = (!paper || section.dataset.paper === paper) && match(card.dataset.verdicts.split(" "), card.dataset.words);
      card.hidden = !good; any = any || good;
    }
    section.hidden = !any;
  }
  document.getElementById("count").textContent = count + (count === 1 ? " claim" : " claims");
}
if (form) {
  for (const body of bodies) {
    const button = body.querySelector(".group button");
    button.hidden = false;
    button.addEventListener("click", () => fold(body, button.getAttribute("aria-expanded") !== "true"));
  }
  for (const kind of ["input", "change"]) form.addEventListener(kind, filter);
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  filter(); // also what the browser has kept of an earlier visit
}
