// Arcs between positions, in the gutter left of the history. A kept link is a solid line as wide as its weight; a cut
// link is only a dashed stub with a cross.

// the four control points of an arc; longer links bulge further, so that they do not lie on top of each other
function arcPoints(edge, from, to, farthest) {
  const bulge = (14 + (edge - 22) * Math.pow(Math.abs(to - from) / farthest, 0.6)) * 1.3;
  return [[edge, from], [edge - bulge, from], [edge - bulge, to], [edge, to]];
}

// the last part of an arc, from t on (de Casteljau)
function tail(points, t) {
  const between = (a, b) => [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t];
  const last = [points[3]];
  for (let level = points; level.length > 1;) {
    level = level.slice(1).map((point, place) => between(level[place], point));
    last.unshift(level[level.length - 1]);
  }
  return last;
}

function curve(points) {
  const [start, ...rest] = points.map((point) => point.map((value) => value.toFixed(1)).join(" "));
  return `M ${start} C ${rest.join(", ")}`;
}

// centres[position] is the height of its row; links are {query, key, weight, cut}
function drawArcs(svg, centres, links, faint) {
  const edge = svg.clientWidth - 6;
  const nodes = [];
  const lengths = links.map((link) => Math.abs(centres[link.query] - centres[link.key]));
  const farthest = Math.max(1, ...lengths);
  const strength = faint ? Math.min(0.5, 12 / links.length + 0.1) : 0.9; // many links at once must not become one blot
  for (const link of links) {
    if (link.query === link.key) {
      nodes.push(selfMark(edge, centres[link.key], link));
      continue;
    }
    const points = arcPoints(edge, centres[link.query], centres[link.key], farthest);
    if (link.cut) {
      nodes.unshift(shape("path", {
        d: curve(tail(points, 0.6)), fill: "none", stroke: "var(--cut)", "stroke-width": 1.2,
        "stroke-dasharray": "4 4", opacity: strength * 0.75, class: "link-cut",
      }));
      if (!faint) nodes.unshift(cross(edge - 2, centres[link.key]));
    } else if (link.weight > 0.001) {
      nodes.push(shape("path", {
        d: curve(points), fill: "none", stroke: "var(--kept)", "stroke-linecap": "round", class: "link-kept",
        "stroke-width": Math.max(0.8, Math.sqrt(link.weight) * 11),
        opacity: strength * Math.min(1, 0.35 + link.weight * 2),
      }));
    }
  }
  svg.replaceChildren(...nodes);
}

function cross(x, y) {
  const r = 3.2;
  return shape("path", {
    d: `M ${x - r} ${y - r} L ${x + r} ${y + r} M ${x - r} ${y + r} L ${x + r} ${y - r}`,
    stroke: "var(--cut)", "stroke-width": 1.8, "stroke-linecap": "round", class: "link-cross",
  });
}

function selfMark(x, y, link) {
  if (link.cut) return cross(x - 2, y);
  return shape("circle", { cx: x - 2, cy: y, r: 2 + Math.sqrt(Math.max(0, link.weight)) * 5, fill: "var(--kept)" });
}
