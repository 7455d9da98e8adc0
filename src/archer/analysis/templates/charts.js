"use strict";
// Figures of the report. Data and palette come from the JSON element "data"; plotly draws what is scrolled into view.

const DATA = JSON.parse(document.getElementById("data").textContent);
const ROOT = document.documentElement;
const SYSTEM_DARK = window.matchMedia("(prefers-color-scheme: dark)");
const MARKER_LIMIT = 40;
const FEW_STEPS = 8;
const TABLE_ROWS = 2000;
const drawn = new Set();

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function isDark() { return ROOT.dataset.theme === "dark"; }
function colour(name) { return DATA.palette[name][isDark() ? 1 : 0]; }
function cssColour(name) { return getComputedStyle(ROOT).getPropertyValue(name).trim(); }
function alpha(hex, opacity) { return hex + Math.round(255 * opacity).toString(16).padStart(2, "0"); }

function applyTheme() {
  const choice = document.getElementById("theme").value;
  ROOT.dataset.theme = choice === "auto" ? (SYSTEM_DARK.matches ? "dark" : "light") : choice;
  for (const node of drawn) draw(node);
  for (const node of document.querySelectorAll("[data-palette]")) paint(node);
}

function paint(node) {
  node.style[node.dataset.property || "color"] = colour(node.dataset.palette);
}

// ---- one panel ----

function lineTraces(mark, axis, window_) {
  const hue = colour(mark.colour);
  const dash = mark.dash ? "dash" : "solid";
  const smoothed = (mark.smooth || {})[window_];
  const traces = [];
  if (mark.low) {
    const edge = { x: mark.x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", yaxis: axis };
    traces.push({ ...edge, y: mark.low }, { ...edge, y: mark.high, fill: "tonexty", fillcolor: alpha(hue, 0.18) });
  }
  traces.push({
    x: mark.x, y: mark.y, name: mark.name, yaxis: axis, opacity: smoothed ? 0.7 : 1,
    mode: mark.x.length <= MARKER_LIMIT && !smoothed ? "lines+markers" : "lines", marker: { size: 5 },
    line: { color: hue, dash, width: smoothed ? 1 : 2 },
  });
  if (smoothed) {
    traces.push({ x: mark.x, y: smoothed, mode: "lines", hoverinfo: "skip", yaxis: axis, line: { color: hue, dash, width: 2.5 } });
  }
  return traces;
}

function pointTraces(mark, axis) {
  const hue = colour(mark.colour);
  const trace = {
    x: mark.x, y: mark.y, text: mark.label, name: mark.name, mode: "markers", yaxis: axis, marker: { color: hue, size: 7, opacity: 0.85 },
  };
  if (mark.low) {
    trace.error_y = {
      type: "data", symmetric: false, color: hue, thickness: 1.2, width: 2,
      array: mark.high.map((v, i) => v - mark.y[i]), arrayminus: mark.low.map((v, i) => mark.y[i] - v),
    };
  }
  return [trace];
}

// Plotly bridges gaps in a filled line, so an empty bin gets a value below the axis instead of none.
function areaTraces(mark, axis, floor) {
  const hue = colour(mark.colour);
  const heights = mark.y.map((v) => v || floor);
  return [{
    x: mark.x, y: [...heights, heights.at(-1)], name: mark.name, yaxis: axis, mode: "lines",
    line: { shape: "hv", width: 1, color: alpha(hue, 0.6), dash: mark.dash ? "dot" : "solid" }, fill: "tozeroy", fillcolor: alpha(hue, 0.22), hoverinfo: "skip",
  }];
}

function spread(marks) {
  const shares = marks.filter((mark) => mark.kind === "area").flatMap((mark) => mark.y.filter((v) => v > 0));
  return shares.length ? [Math.min(...shares) / 2, Math.max(...shares) * 1.2] : null;
}

function tracesOf(mark, window_, floor) {
  const axis = mark.secondary ? "y2" : "y";
  if (mark.kind === "line") return lineTraces(mark, axis, window_);
  if (mark.kind === "points") return pointTraces(mark, axis);
  if (mark.kind === "area") return areaTraces(mark, axis, floor);
  return [];
}

function shapeOf(mark) {
  const hue = colour(mark.colour);
  if (mark.kind === "hline") {
    return { type: "line", xref: "paper", x0: 0, x1: 1, y0: mark.y[0], y1: mark.y[0], line: { color: hue, width: 1.5, dash: "dash" } };
  }
  if (mark.kind === "vspan") {
    return { type: "rect", yref: "paper", y0: 0, y1: 1, x0: mark.x[0], x1: mark.x[1], line: { width: 0 }, fillcolor: alpha(hue, 0.16), layer: "below" };
  }
  return null;
}

function isLarge(marks) {
  return marks.some((mark) => (mark.y || []).some((value) => Math.abs(value) >= 1000));
}

function wholeSteps(panel, marks) {
  const steps = marks.filter((mark) => mark.kind === "line").flatMap((mark) => mark.x);
  return panel.x.steps && Math.max(...steps) - Math.min(...steps) <= FEW_STEPS ? { tick0: 0, dtick: 1 } : {};
}

function axisLayout(axis) {
  const line = cssColour("--line");
  const layout = { title: { text: axis.label, standoff: 8, font: { size: 11.5 } }, gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true, exponentformat: "power", type: axis.log ? "log" : "linear" };
  if (axis.range) layout.range = axis.log ? axis.range.map(Math.log10) : axis.range;
  if (axis.log) Object.assign(layout, axis.decades ? { dtick: 1 } : { dtick: "D2", exponentformat: "none" });
  if (axis.ticks && axis.ticks.length) Object.assign(layout, { tickvals: axis.ticks, ticktext: axis.tick_labels });
  return layout;
}

function draw(node) {
  const panel = DATA.figures[node.dataset.figure][node.dataset.panel];
  const window_ = document.getElementById("smoothing").value;
  const hidden = node.hiddenMarks || (node.hiddenMarks = new Set());
  const marks = panel.marks.filter((_, i) => !hidden.has(i));
  const shares = spread(marks);
  const layout = {
    margin: { l: 54, r: panel.y2 ? 54 : 12, t: 8, b: 44 }, showlegend: false, hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: cssColour("--text") },
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: { ...axisLayout(panel.x), ...wholeSteps(panel, marks) }, yaxis: { ...axisLayout(panel.y), ...(isLarge(marks) ? { tickformat: ",d" } : {}) }, shapes: marks.map(shapeOf).filter(Boolean),
  };
  if (panel.y2) layout.yaxis2 = { ...axisLayout({ label: panel.y2.label, log: true, decades: true, range: shares }), overlaying: "y", side: "right", showgrid: false, tickfont: { size: 10 } };
  Plotly.react(node, marks.flatMap((mark) => tracesOf(mark, window_, shares && shares[0] / 10)), layout, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
  drawLegend(node, panel, hidden);
  drawn.add(node);
}

function drawLegend(node, panel, hidden) {
  const entries = panel.marks.map((mark, i) => [mark, i]).filter(([mark]) => mark.name);
  const legend = node.parentElement.querySelector(".legend");
  const focused = [...legend.children].indexOf(document.activeElement);
  legend.replaceChildren(...entries.map(([mark, i]) => {
    const button = element("button", { type: "button" }, swatch(mark), mark.name);
    button.setAttribute("aria-pressed", String(!hidden.has(i)));
    button.addEventListener("click", () => {
      if (!hidden.delete(i)) hidden.add(i);
      draw(node);
    });
    return button;
  }));
  if (focused >= 0) legend.children[focused].focus();
}

function swatch(mark) {
  const space = "http://www.w3.org/2000/svg";
  const icon = document.createElementNS(space, "svg");
  const shape = document.createElementNS(space, mark.kind === "points" ? "circle" : mark.kind === "line" || mark.kind === "hline" ? "line" : "rect");
  const attributes = {
    circle: { cx: 11, cy: 6, r: 4, fill: colour(mark.colour) },
    line: { x1: 0, x2: 22, y1: 6, y2: 6, stroke: colour(mark.colour), "stroke-width": 2.5, "stroke-dasharray": mark.dash ? "5 3" : "none" },
    rect: { x: 3, y: 0, width: 16, height: 12, fill: alpha(colour(mark.colour), mark.kind === "area" ? 0.5 : 0.22) },
  }[shape.tagName];
  for (const [name, value] of Object.entries({ ...attributes })) shape.setAttribute(name, value);
  for (const [name, value] of Object.entries({ width: 22, height: 12, "aria-hidden": "true" })) icon.setAttribute(name, value);
  icon.append(shape);
  return icon;
}

// ---- the numbers behind a figure ----

function fillNumbers(details) {
  const place = details.querySelector(".scroll");
  if (!details.open || place.childElementCount) return;
  for (const panel of DATA.figures[details.dataset.figure]) {
    const table = element("table", {}, element("caption", { textContent: panel.title }));
    table.append(element("thead", {}, cells("th", ["Series", panel.x.label, panel.y.label, "Low", "High"])));
    const rows = panel.marks.flatMap((mark) => numberRows(mark));
    table.append(element("tbody", {}, ...rows.slice(0, TABLE_ROWS).map((row) => cells("td", row))));
    if (rows.length > TABLE_ROWS) table.append(element("caption", { textContent: `${panel.title}: first ${TABLE_ROWS} of ${rows.length} rows` }));
    place.append(table);
  }
}

function numberRows(mark) {
  const show = (value) => (value === undefined || value === null ? "" : String(value));
  const length = Math.max((mark.x || []).length, (mark.y || []).length);
  return Array.from({ length }, (_, i) => [
    mark.name, mark.label && mark.label[i] ? `${show(mark.x[i])} (${mark.label[i]})` : show((mark.x || [])[i]),
    show((mark.y || [])[i]), show((mark.low || [])[i]), show((mark.high || [])[i]),
  ]);
}

function cells(tag, values) {
  return element("tr", {}, ...values.map((value) => element(tag, { textContent: value })));
}

// ---- Figure 1 ----

function startTokens(node) {
  const { rows, min_count: minimum } = DATA.tokens[node.dataset.figure];
  const input = element("input", { type: "number", min: 1, value: minimum, step: 1 });
  const status = element("span", { role: "status" });
  const halves = element("div", { className: "halves" });
  node.append(element("div", { className: "controls" }, element("label", {}, "Seen at least ", input, " times "), status), halves);
  const update = () => {
    const often = rows.filter((row) => row[1] >= Math.max(1, Number(input.value) || 1));
    const size = Math.min(100, Math.floor(often.length / 2));
    status.textContent = `${often.length} tokens occur that often; the ${size} at each end are shown.`;
    halves.replaceChildren(half("Highest entropy", often.slice(0, size), "reasoning"), half("Lowest entropy", often.slice(often.length - size).reverse(), "knowledge"));
  };
  input.addEventListener("input", update);
  update();
}

function half(title, rows, hue) {
  const cloud = element("ul", { className: "cloud" });
  cloud.setAttribute("aria-label", `${title}, most extreme first`);
  rows.forEach(([text], i) => {
    const word = element("li", { textContent: text.replace(/^␣+|␣+$/g, "") || text });
    word.style.fontSize = `${2.1 - (1.4 * i) / Math.max(rows.length - 1, 1)}rem`;
    word.dataset.palette = hue;
    paint(word);
    cloud.append(word);
  });
  const largest = Math.max(...rows.map((row) => row[2]), 1e-12);
  const table = element("table", {}, element("thead", {}, cells("th", ["Token", "Seen", "Mean entropy (nats)", ""])));
  table.append(element("tbody", {}, ...rows.map(([text, count, entropy]) => {
    const fill = element("div", { className: "fill" });
    fill.style.width = `${(100 * entropy) / largest}%`;
    fill.dataset.palette = hue;
    fill.dataset.property = "backgroundColor";
    paint(fill);
    const row = cells("td", [text, count.toLocaleString("en"), entropy.toPrecision(3)]);
    row.firstChild.className = "text";
    row.append(element("td", { className: "bar" }, fill));
    return row;
  })));
  const ranking = element("div", { className: "ranking", tabIndex: 0, role: "region", ariaLabel: `${title}, ranking` }, table);
  return element("div", {}, element("h4", { textContent: `${title} (${rows.length})` }), cloud, ranking);
}

// ---- start ----

function startCharts() {
  const smoothing = document.getElementById("smoothing");
  smoothing.append(...DATA.windows.map((w) => element("option", { value: w, textContent: `${w} steps` })));
  smoothing.value = String(DATA.windows[0]);
  smoothing.addEventListener("change", () => drawn.forEach(draw));
  document.getElementById("theme").addEventListener("change", applyTheme);
  SYSTEM_DARK.addEventListener("change", applyTheme);
  applyTheme();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot").forEach((node) => watcher.observe(node));
  document.querySelectorAll(".token-figure").forEach(startTokens);
  document.querySelectorAll("details.numbers").forEach((node) => node.addEventListener("toggle", () => fillNumbers(node)));
}

startCharts();
