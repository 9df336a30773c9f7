// Small charts in the page's colours: lines over a common x axis, with a marker that a slider moves.

const MARGIN = { left: 44, right: 10, top: 8, bottom: 30 };

// lines: [{values, colour, area}], x: positions of the values; axes: {x: [from, to], y: [0, to], xName, format}
function drawChart(svg, lines, x, axes, marker) {
  const width = Math.max(200, svg.clientWidth), height = Math.max(120, svg.clientHeight);
  const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
  const across = (value) => MARGIN.left + (right - MARGIN.left) * (value - axes.x[0]) / (axes.x[1] - axes.x[0]);
  const up = (value) => bottom - (bottom - MARGIN.top) * value / axes.y[1];
  const nodes = [];
  for (const level of [0, 0.25, 0.5, 0.75, 1]) {
    const y = up(level * axes.y[1]);
    nodes.push(shape("line", { x1: MARGIN.left, x2: right, y1: y, y2: y, stroke: "var(--line)" }));
    nodes.push(label(MARGIN.left - 6, y + 4, axes.format(level * axes.y[1]), "end"));
  }
  nodes.push(label((MARGIN.left + right) / 2, height - 4, axes.xName, "middle"));
  for (const tick of axes.ticks || []) nodes.push(label(across(tick), bottom + 14, String(tick), "middle"));
  if (marker !== null) {
    const at = Math.min(right, Math.max(MARGIN.left, across(marker)));
    if (axes.shade) {
      nodes.push(shape("rect", {
        x: at, y: MARGIN.top, width: right - at, height: bottom - MARGIN.top, fill: "var(--cut-soft)", opacity: 0.7,
        class: "gone",
      }));
    }
  }
  for (const line of lines) {
    const points = line.values.map((value, place) => (value === null ? null : [across(x[place]), up(value)]))
      .filter((point) => point !== null);
    if (!points.length) continue;
    const path = "M " + points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join(" L ");
    if (line.area) {
      const close = ` L ${points[points.length - 1][0].toFixed(1)} ${bottom} L ${points[0][0].toFixed(1)} ${bottom} Z`;
      nodes.push(shape("path", { d: path + close, fill: line.colour, opacity: 0.25 }));
    }
    nodes.push(shape("path", {
      d: path, fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash || "none",
      "stroke-linejoin": "round", class: "curve",
    }));
  }
  if (marker !== null) {
    const at = Math.min(right, Math.max(MARGIN.left, across(marker)));
    nodes.push(shape("line", {
      x1: at, x2: at, y1: MARGIN.top, y2: bottom, stroke: "var(--text)", "stroke-width": 1.5, class: "marker",
    }));
  }
  svg.replaceChildren(...nodes);
}

function label(x, y, text, anchor) {
  const node = shape("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function chartLegend(id, lines) {
  byId(id).replaceChildren(...lines.map((line) => {
    const key = element("span", { class: "key line" });
    key.style.borderTopColor = line.colour;
    key.style.borderTopStyle = line.dash ? "dashed" : "solid";
    return element("span", {}, key, line.name);
  }));
}
