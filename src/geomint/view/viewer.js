"use strict";
// The viewer of one scene: `scene` is the JSON that scene.py writes.
const byId = id => document.getElementById(id);
const canvas = byId("scene"), pen = canvas.getContext("2d"), slider = byId("slider"), button = byId("play");
const { frames, points, dimension, times } = scene;
const spatial = dimension === 3;

// Numbers are 16-bit shares of the range of each coordinate.
function decoded(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  return new Uint16Array(bytes.buffer);
}
const shares = decoded(scene.positions);
const values = scene.values ? decoded(scene.values) : null;
const span = scene.high.map((x, k) => x - scene.low[k]);
const still = new Float64Array(scene.fixed.flat());
const total = points + scene.fixed.length;
const middle = scene.low.map((x, k) => x + span[k] / 2);
const size = Math.max(1e-300, ...span);

// Positions at a real frame number, linear between frames, relative to the middle.
const here = new Float64Array(total * 3);
const shade = new Float64Array(points);
function place(frame) {
  const a = Math.min(frames - 1, Math.floor(frame)), b = Math.min(frames - 1, a + 1), w = frame - a;
  for (let i = 0; i < points; i++) {
    for (let k = 0; k < dimension; k++) {
      const x = shares[(a * points + i) * dimension + k];
      let y = shares[(b * points + i) * dimension + k];
      if (scene.box && Math.abs(x - y) > 20000) y = x; // through the wall of a periodic box
      here[3 * i + k] = scene.low[k] + span[k] * (x + w * (y - x)) / 65535 - middle[k];
    }
    if (values) shade[i] = (values[a * points + i] * (1 - w) + values[b * points + i] * w) / 65535;
  }
  for (let i = 0; i < scene.fixed.length; i++)
    for (let k = 0; k < dimension; k++) here[3 * (points + i) + k] = still[i * dimension + k] - middle[k];
}

// Seen from: turned about the vertical, then tilted. z is up in space, y in the plane.
let turn = -0.65, tilt = 0.4, zoom = 1, shift = [0, 0];
const screen = new Float64Array(total * 3); // x, y, depth
let scale = 1, width = 1, height = 1;
function project(source, count, target) {
  const ct = Math.cos(turn), st = Math.sin(turn), ci = Math.cos(tilt), si = Math.sin(tilt);
  const cx = width / 2 + shift[0], cy = height / 2 + shift[1];
  for (let i = 0; i < count; i++) {
    const x = source[3 * i], y = source[3 * i + 1], z = source[3 * i + 2];
    if (!spatial) { target[3 * i] = cx + scale * x; target[3 * i + 1] = cy - scale * y * scene.stretch; target[3 * i + 2] = 0; continue; }
    const across = ct * x - st * y, away = st * x + ct * y;
    const up = ci * z + si * away, depth = ci * away - si * z;
    const near = 1 / (1 + 0.25 * depth / size);
    target[3 * i] = cx + scale * near * across; target[3 * i + 1] = cy - scale * near * up; target[3 * i + 2] = depth;
  }
}

const palette = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f", "#b3334c", "#6a51a3"];
const viridis = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function heat(x, light = 1) {
  const s = Math.max(0, Math.min(0.9999, x)) * (viridis.length - 1), k = Math.floor(s), w = s - k;
  return "rgb(" + viridis[k].map((c, i) => Math.round(light * (c + w * (viridis[k + 1][i] - c)))) + ")";
}
function colour(i) { return values ? heat(shade[i]) : palette[scene.colors[i] % palette.length]; }
function lit(hex, light) {
  const n = parseInt(hex.slice(1), 16);
  return "rgb(" + [n >> 16, n >> 8 & 255, n & 255].map(c => Math.min(255, Math.round(c * light))) + ")";
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const sprites = {};
function sprite(color) {
  if (sprites[color]) return sprites[color];
  const s = document.createElement("canvas"); s.width = s.height = 64;
  const c = s.getContext("2d"), g = c.createRadialGradient(24, 22, 2, 32, 32, 31);
  g.addColorStop(0, "#ffffff"); g.addColorStop(.25, color); g.addColorStop(1, color.startsWith("#") ? lit(color, .55) : color);
  c.fillStyle = g; c.beginPath(); c.arc(32, 32, 31, 0, 2 * Math.PI); c.fill();
  return sprites[color] = s;
}

function line(x1, y1, x2, y2) { pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke(); }
const trail = new Float64Array(3), onScreen = new Float64Array(3);
function drawPaths(frame) {
  const last = Math.floor(frame), first = Math.max(0, last - scene.trail);
  pen.lineWidth = 1.3;
  for (let i = 0; i < points; i++) {
    pen.strokeStyle = palette[scene.colors[i] % palette.length];
    let before = null;
    for (let f = first; f <= last + 1; f++) {
      for (let k = 0; k < 3; k++)
        trail[k] = f > last ? here[3 * i + k] : k < dimension ? scene.low[k] + span[k] * shares[(f * points + i) * dimension + k] / 65535 - middle[k] : 0;
      project(trail, 1, onScreen);
      if (before) { pen.globalAlpha = .1 + .6 * (f - first) / (last + 1 - first); line(before[0], before[1], onScreen[0], onScreen[1]); }
      before = [onScreen[0], onScreen[1]];
    }
  }
  pen.globalAlpha = 1;
}
function drawBox() {
  const corner = new Float64Array(24), seen = new Float64Array(24), n = spatial ? 8 : 4;
  for (let c = 0; c < n; c++) for (let k = 0; k < dimension; k++) corner[3 * c + k] = (c >> k & 1 ? scene.box[1][k] : scene.box[0][k]) - middle[k];
  project(corner, n, seen);
  pen.strokeStyle = style("--line"); pen.lineWidth = 1;
  for (let c = 0; c < n; c++) for (let k = 0; k < dimension; k++) if (!(c >> k & 1)) { const d = c | 1 << k; line(seen[3 * c], seen[3 * c + 1], seen[3 * d], seen[3 * d + 1]); }
}
function drawTriangle(t, base) {
  const [a, b, c] = scene.triangles[t];
  const e = k => [here[3 * b + k] - here[3 * a + k], here[3 * c + k] - here[3 * a + k]];
  const [x, y, z] = [e(0), e(1), e(2)];
  const n = [y[0] * z[1] - y[1] * z[0], z[0] * x[1] - z[1] * x[0], x[0] * y[1] - x[1] * y[0]];
  const light = spatial ? .45 + .55 * Math.abs(.3 * n[0] - .5 * n[1] + .81 * n[2]) / (Math.hypot(...n) || 1) : .9;
  pen.fillStyle = pen.strokeStyle = values ? heat((shade[a] + shade[b] + shade[c]) / 3, light) : lit(base, light);
  pen.lineWidth = .6; pen.beginPath(); pen.moveTo(screen[3 * a], screen[3 * a + 1]);
  pen.lineTo(screen[3 * b], screen[3 * b + 1]); pen.lineTo(screen[3 * c], screen[3 * c + 1]); pen.closePath(); pen.fill(); pen.stroke();
}
function drawBond(b, ink) {
  const [i, j] = scene.bonds[b];
  pen.strokeStyle = ink; pen.lineWidth = Math.max(2, scale * size * .008 * scene.thick);
  line(screen[3 * i], screen[3 * i + 1], screen[3 * j], screen[3 * j + 1]);
}
function drawPoint(i) {
  const r = Math.max(1.6, scale * scene.radii[i]) / (spatial ? 1 + .25 * screen[3 * i + 2] / size : 1), x = screen[3 * i], y = screen[3 * i + 1];
  if (r > 3 && points <= 4000) { pen.drawImage(sprite(colour(i)), x - r, y - r, 2 * r, 2 * r); return; }
  pen.fillStyle = colour(i); pen.beginPath(); pen.arc(x, y, r, 0, 2 * Math.PI); pen.fill();
}
function draw() {
  const ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth; height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0); pen.clearRect(0, 0, width, height); pen.lineCap = "round";
  const room = .82, tall = spatial ? Math.hypot(...span) * .78 : span[1] * scene.stretch, wide = spatial ? tall : span[0];
  scale = zoom * room * Math.min(width / Math.max(wide, 1e-300), height / Math.max(tall, 1e-300));
  if (!isFinite(scale)) scale = 1;
  place(now); project(here, total, screen);
  if (scene.box) drawBox();
  if (scene.trail) drawPaths(now);
  const ink = style("--soft"), parts = [], depth = i => screen[3 * i + 2];
  scene.triangles.forEach((t, k) => parts.push([(depth(t[0]) + depth(t[1]) + depth(t[2])) / 3, 0, k]));
  scene.bonds.forEach((b, k) => parts.push([(depth(b[0]) + depth(b[1])) / 2, 1, k]));
  if (scene.dots) for (let i = 0; i < points; i++) parts.push([depth(i), 2, i]);
  parts.sort(spatial ? (a, b) => b[0] - a[0] : (a, b) => a[1] - b[1]);
  for (const [, kind, k] of parts) kind === 0 ? drawTriangle(k, palette[(scene.colors[scene.triangles[k][0]] || 0) % palette.length]) : kind === 1 ? drawBond(k, ink) : drawPoint(k);
  pen.strokeStyle = style("--ink"); pen.fillStyle = style("--panel"); pen.lineWidth = 2;
  for (let i = points; i < total; i++) { pen.beginPath(); pen.arc(screen[3 * i], screen[3 * i + 1], 4, 0, 2 * Math.PI); pen.fill(); pen.stroke(); }
  byId("time").textContent = "t = " + timeAt(now).toPrecision(5);
  slider.value = now;
  plots.forEach(p => p());
}
function timeAt(frame) {
  const a = Math.min(frames - 1, Math.floor(frame)), b = Math.min(frames - 1, a + 1);
  return times[a] + (frame - a) * (times[b] - times[a]);
}

// Quantities over time, with a line at the present.
function plot(series) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), c = document.createElement("canvas");
  const name = document.createElement("span"), value = document.createElement("output");
  name.textContent = series.name; caption.append(name, value); figure.append(caption, c); byId("plots").append(figure);
  c.setAttribute("role", "img"); c.setAttribute("aria-label", series.name + " over time");
  const t0 = times[0], t1 = times[frames - 1], p = c.getContext("2d");
  const inside = series.t.map((t, k) => [t, series.y[k]]).filter(([t]) => t >= t0 && t <= t1);
  const ys = inside.map(x => x[1]).filter(isFinite);
  let low = Math.min(...ys), high = Math.max(...ys);
  if (!(high > low)) { const pad = Math.abs(high) * 1e-3 || 1e-16; low -= pad; high += pad; }
  const left = 4, shown = x => x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5) ? x.toExponential(2) : x.toPrecision(4);
  const X = t => left + (t - t0) / (t1 - t0 || 1) * (c.clientWidth - 2 * left);
  const Y = y => 6 + (high - y) / (high - low) * (c.clientHeight - 12);
  c.addEventListener("pointerdown", e => { stop(); goTo(t0 + (e.offsetX - left) / (c.clientWidth - 2 * left) * (t1 - t0)); });
  return () => {
    const ratio = window.devicePixelRatio || 1;
    c.width = Math.round(c.clientWidth * ratio); c.height = Math.round(c.clientHeight * ratio); p.setTransform(ratio, 0, 0, ratio, 0, 0);
    p.strokeStyle = style("--line"); p.beginPath(); if (low < 0 && high > 0) { p.moveTo(left, Y(0)); p.lineTo(c.clientWidth - left, Y(0)); } p.stroke();
    p.strokeStyle = style("--accent"); p.lineWidth = 1.2; p.beginPath();
    inside.forEach(([t, y], k) => k ? p.lineTo(X(t), Y(y)) : p.moveTo(X(t), Y(y))); p.stroke();
    p.font = "11px system-ui, sans-serif"; p.textBaseline = "middle";
    for (const [x, at] of [[high, 7], [low, c.clientHeight - 7]]) {
      p.globalAlpha = .85; p.fillStyle = style("--panel"); p.fillRect(left, at - 7, p.measureText(shown(x)).width + 4, 14);
      p.globalAlpha = 1; p.fillStyle = style("--soft"); p.fillText(shown(x), left + 2, at);
    }
    const t = timeAt(now); let k = inside.findIndex(x => x[0] >= t); if (k < 0) k = inside.length - 1;
    value.textContent = k < 0 ? "" : shown(inside[k][1]);
    p.strokeStyle = style("--ink"); p.lineWidth = 1; p.beginPath(); p.moveTo(X(t), 0); p.lineTo(X(t), c.clientHeight); p.stroke();
    if (k >= 0) { p.fillStyle = style("--ink"); p.beginPath(); p.arc(X(t), Y(inside[k][1]), 3.2, 0, 7); p.fill(); }
  };
}
function goTo(t) {
  let a = 0, b = frames - 1;
  while (b - a > 1) { const m = a + b >> 1; times[m] <= t ? a = m : b = m; }
  now = Math.max(0, Math.min(frames - 1, a + (t - times[a]) / (times[b] - times[a] || 1))); draw();
}

// Playing: the whole scene takes scene.seconds at speed 1.
let now = 0, playing = false, stamp = 0;
function tick(at) {
  if (!playing) return;
  now += Math.min(.1, (at - stamp) / 1000) * (frames - 1) / scene.seconds * Number(byId("speed").value); stamp = at;
  if (now >= frames - 1) { now = frames > 1 ? now % (frames - 1) : 0; }
  draw(); requestAnimationFrame(tick);
}
function start() { playing = true; button.textContent = "❚❚ Pause"; stamp = performance.now(); requestAnimationFrame(tick); }
function stop() { playing = false; button.textContent = "▶ Play"; }
button.addEventListener("click", () => playing ? stop() : start());
slider.max = frames - 1;
slider.addEventListener("input", () => { stop(); now = Number(slider.value); draw(); });
addEventListener("keydown", e => {
  if (["INPUT", "SELECT", "BUTTON"].includes(e.target.tagName) && e.key === " ") return;
  if (e.key === " ") { playing ? stop() : start(); e.preventDefault(); }
  if ((e.key === "ArrowRight" || e.key === "ArrowLeft") && e.target !== slider) { stop(); now = Math.max(0, Math.min(frames - 1, Math.round(now) + (e.key === "ArrowRight" ? 1 : -1))); draw(); }
});
const held = new Map();
canvas.addEventListener("pointerdown", e => { held.set(e.pointerId, [e.clientX, e.clientY]); canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointerup", e => held.delete(e.pointerId));
canvas.addEventListener("pointercancel", e => held.delete(e.pointerId));
canvas.addEventListener("pointermove", e => {
  const old = held.get(e.pointerId); if (!old) return;
  const move = [e.clientX - old[0], e.clientY - old[1]];
  if (held.size === 2) {
    const other = [...held].find(([id]) => id !== e.pointerId)[1], far = p => Math.hypot(p[0] - other[0], p[1] - other[1]);
    zoom *= far([e.clientX, e.clientY]) / Math.max(1, far(old));
  } else if (spatial && !e.shiftKey) { turn += move[0] * .008; tilt = Math.max(-1.57, Math.min(1.57, tilt + move[1] * .008)); }
  else { shift[0] += move[0]; shift[1] += move[1]; }
  held.set(e.pointerId, [e.clientX, e.clientY]); if (!playing) draw();
});
const embedded = window !== window.top; // in a page that scrolls, the wheel and vertical strokes scroll it
if (embedded) canvas.style.touchAction = "pan-y";
canvas.addEventListener("wheel", e => { if (embedded && !e.ctrlKey) return; zoom *= Math.exp(-e.deltaY * .001); e.preventDefault(); if (!playing) draw(); }, { passive: false });
canvas.addEventListener("dblclick", () => { zoom = 1; shift = [0, 0]; if (!playing) draw(); });

const plots = scene.series.map(plot);
if (!plots.length) { byId("plots").remove(); document.querySelector("main").style.gridTemplateColumns = "minmax(0, 1fr)"; }
if (!spatial) byId("stage").classList.add("flat");
const wheel = embedded ? "ctrl-wheel" : "wheel";
byId("hint").textContent = spatial ? `drag: turn · ${wheel}: zoom · shift-drag: move` : `${wheel}: zoom · drag: move`;
for (const [name, k] of scene.names) { const row = document.createElement("div"), dot = document.createElement("i"); dot.style.background = palette[k % palette.length]; row.append(name, dot); byId("key").append(row); }
if (values) { const bar = document.createElement("b"); bar.style.background = "linear-gradient(90deg," + viridis.map(c => "rgb(" + c + ")") + ")"; byId("key").append(scene.valueName + ": " + scene.valueRange.map(x => x.toPrecision(3)).join(" … "), bar); }
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
const moment = location.hash.match(/^#t=([-+.\de]+)$/);
if (moment) goTo(Number(moment[1])); else draw();
if (!moment && frames > 1 && !matchMedia("(prefers-reduced-motion: reduce)").matches) start();
