// The noise page: one state, one render. `data` is what recbole_denoiser detect found.
const data = JSON.parse(byId("data").textContent);
const grid = data.curve.threshold;
const state = { cut: nearest(grid, data.threshold), user: 0, place: null, shown: 25 };
const KINDS = { uniform: "like items drawn at random", popularity: "like popular items drawn at random" };
const COLOURS = { data: "var(--kept)", uniform: "var(--cut)", popularity: "var(--noise)" };

const narrow = window.matchMedia("(max-width: 900px)");

const title = (number) => data.items[number][1] || data.items[number][0];
const probability = (thousandths) => percent(thousandths / 1000);

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, place) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = place; });
  return best;
}

// the threshold of the slider; without a curve nothing can go
const threshold = () => (grid.length ? grid[state.cut] : 1);
const goes = (thousandths) => (thousandths / 1000) * data.bound > threshold();

// ---- words ----

function renderStory() {
  const { share, interval, sizes, shares } = data;
  byId("heading").textContent = `Noise in ${data.dataset}`;
  byId("facts").textContent = `${count(sizes.interactions)} interactions · ${count(sizes.users)} users · ` +
    `${count(sizes.items)} items` + (data.texts ? " · item texts used" : "") + ` · ${data.seconds} s`;
  const kinds = Object.entries(shares).filter(([, part]) => part >= 0.0005)
    .map(([kind, part]) => `${percent(part)} ${KINDS[kind] || kind}`);
  const range = `${percent(interval[0])} to ${percent(interval[1])}`;
  byId("story").textContent = data.verdict === "judged"
    ? `About ${percent(share)} of the interactions look like noise (95 % interval: ${range})` +
      (kinds.length ? `: ${kinds.join(", ")}` : "") +
      (data.gathered > 0 ? `; ${percent(data.gathered)} of all stand in some users only. ` : ". ") + expectation()
    : `Too thin to judge: the share of noise may be anything from ${range}, so nothing would be removed. The list ` +
      "below only says what is unusual.";
  byId("known").textContent = data.known === null ? ""
    : `Known from labels: ${percent(data.known.share)} noise; AUC ${data.known.auc === null ? "-" : data.known.auc.toFixed(3)}, ` +
      `precision ${optional(data.known.precision)} and recall ${optional(data.known.recall)} of what is removed at ` +
      `threshold ${data.threshold}.`;
}

const optional = (value) => (value === null ? "-" : percent(value));

function expectation() {
  if (data.auc === null) return "";
  return `A noisy interaction gets a higher score than a clean one in ${percent(data.auc)} of all pairs (AUC ` +
    `${data.auc.toFixed(3)}; rarity alone: ${data.popularity_auc.toFixed(3)}).`;
}

// ---- where to cut ----

function renderCut() {
  const part = grid.length ? data.curve.removed[state.cut] : 0;
  const precision = grid.length ? data.curve.precision[state.cut] : null;
  const recall = grid.length ? data.curve.recall[state.cut] : 0;
  byId("threshold-value").textContent = threshold().toFixed(2);
  byId("gone").replaceChildren(count(Math.round(part * data.sizes.interactions)), " ",
    element("small", {}, `(${percent(part)})`));
  byId("precision").textContent = optional(precision);
  byId("recall").textContent = optional(recall);
  byId("slider-note").textContent = data.bound === 0 ? "Nothing goes at any threshold, because the share of noise may be 0."
    : `Cautious: counted with the lower end of the share (${percent(data.interval[0])}). Every user keeps two items.`;
  renderCharts(part);
}

// where the data's part right of it is `part`
function scoreAt(part) {
  const { edges, data: density } = data.histogram;
  let right = 0;
  for (let bin = density.length - 1; bin >= 0; bin -= 1) {
    if (right + density[bin] >= part) {
      return edges[bin + 1] - (edges[bin + 1] - edges[bin]) * (density[bin] ? (part - right) / density[bin] : 0);
    }
    right += density[bin];
  }
  return edges[0];
}

function renderCharts(part) {
  const { edges } = data.histogram;
  if (!edges.length) return;
  const middle = edges.slice(1).map((edge, place) => (edge + edges[place]) / 2);
  const lines = Object.keys(data.histogram).filter((key) => key !== "edges").map((key) => ({
    values: data.histogram[key], colour: COLOURS[key] || "var(--pick)", area: key === "data",
    dash: key === "popularity" ? "6 4" : null,
    name: key === "data" ? "the data" : `injected items, ${key}`,
  }));
  const most = Math.max(...lines.flatMap((line) => line.values));
  drawChart(byId("distribution"), lines, middle, {
    x: [edges[0], edges[edges.length - 1]], y: [0, Math.ceil(25 * most) / 25], xName: "fits well  ←  score  →  fits badly", shade: true,
    format: (value) => `${Math.round(100 * value)} %`,
  }, part > 0 ? scoreAt(part) : edges[edges.length - 1]);
  chartLegend("distribution-legend", lines);
  const curves = [
    { values: data.curve.precision, colour: "var(--pick)", name: "precision" },
    { values: data.curve.recall, colour: "var(--cut)", name: "recall", dash: "6 4" },
  ];
  drawChart(byId("tradeoff"), curves, grid, {
    x: [0, 1], y: [0, 1], xName: "threshold", ticks: [0.25, 0.5, 0.75], format: (value) => `${Math.round(100 * value)} %`,
  }, threshold());
  chartLegend("tradeoff-legend", curves);
  byId("distribution").setAttribute("aria-label", "Distribution of the scores of the data and of injected items");
  byId("tradeoff").setAttribute("aria-label", "Expected precision and recall by threshold");
}

// ---- interactions ----

function chance(posterior) {
  const track = element("span", { class: "track" }, element("i"));
  track.firstChild.style.width = `${posterior / 10}%`;
  return element("span", { class: "bar" }, track, element("b", {}, probability(posterior)));
}

function entry(tag, { number, item, posterior, meta, noise, selected, onclick }) {
  return element(tag, {
    class: "entry" + (goes(posterior) ? " goes" : ""), onclick, role: "option", tabindex: selected ? 0 : -1,
    "aria-selected": String(Boolean(selected)),
  },
  element("span", { class: "number" }, String(number)),
  element("span", { class: "name" }, element("span", { class: "title" }, title(item)), " ",
    noise === 1 ? element("span", { class: "tag noise" }, "noise") : null,
    element("span", { class: "meta" }, meta)),
  chance(posterior));
}

const rarity = (item) => `${count(data.items[item][2])} in all`;

function renderSuspicious() {
  byId("suspicious").setAttribute("role", "listbox");
  byId("suspicious").setAttribute("aria-label", "Most suspicious interactions");
  byId("suspicious").replaceChildren(...data.suspicious.slice(0, state.shown).map((found, place) => entry("li", {
    ...found, number: place + 1, meta: [`user ${found.user}`, found.when, rarity(found.item)].filter(Boolean).join(" · "),
    selected: found.number === state.user && found.place === state.place,
    onclick: () => {
      if (found.number === null) return;
      pick(found.number, found.place);
      if (narrow.matches) byId("user-panel").scrollIntoView(); // it is below the list there
    },
  })));
  byId("more").hidden = state.shown >= data.suspicious.length;
}

function renderUser() {
  const own = data.users[state.user];
  if (document.activeElement !== byId("user")) byId("user").value = own.user;
  const out = own.posterior.filter(goes).length;
  byId("user-note").textContent = `User ${own.user}: ${count(own.item.length)} interactions, ` +
    (data.bound ? `${count(out)} would go.` : "none would go.") +
    (data.users.length < data.all_users
      ? ` The ${count(data.users.length)} users with most noise are in this page; noise.csv has all ${count(data.all_users)}.`
      : "");
  const noisy = new Set(own.noise || []);
  const rows = own.item.map((item, place) => entry("li", {
    number: place + 1, item, posterior: own.posterior[place], meta: rarity(item), noise: noisy.has(place) ? 1 : 0,
    selected: place === state.place, onclick: () => pick(state.user, place),
  }));
  byId("history").replaceChildren(...rows.reverse());
  renderReason();
}

// the neighbours in the order of how much they miss; what an item is expected to have by chance says how telling that is
function renderReason() {
  const own = data.users[state.user];
  if (state.place === null) { byId("reason").replaceChildren(); return; }
  const item = own.item[state.place];
  const found = data.evidence[`${own.user} ${state.place}`];
  const nodes = [element("p", {}, element("strong", {}, title(item)),
    `: noise with a probability of ${probability(own.posterior[state.place])}.`)];
  if (!found) {
    nodes.push(element("p", { class: "small" }, `It occurs ${count(data.items[item][2])} times in the data. Neighbours ` +
      "are shown for the most suspicious interactions only."));
  } else {
    const never = found.neighbours.filter(([, together]) => together === 0).length;
    const few = found.neighbours.filter(([, together, expected]) => together < expected / 2).length;
    nodes.push(element("p", {}, `${found.others === 0 ? "No other user has it" : `Others have it ${count(found.others)} times`}. ` +
      `Of the ${found.neighbours.length} items around it here, ${never} never stand near it at any other user` +
      (few > never ? `, and ${few - never} more do so less than half as often as by chance.` : ".")));
    const worst = [...found.neighbours].sort((a, b) => (b[2] - b[1]) / Math.sqrt(b[2] + 1) - (a[2] - a[1]) / Math.sqrt(a[2] + 1));
    nodes.push(element("ul", {}, ...worst.slice(0, 6).map(([neighbour, together, expected]) =>
      element("li", { class: together === 0 ? "never" : "" }, element("span", {}, title(neighbour)),
        element("span", {}, `near it ${count(together)}×, by chance ${expected < 10 ? expected.toFixed(1) : count(Math.round(expected))}×`)))));
    nodes.push(element("p", { class: "small muted" }, `Near: within ${data.window} places. Counted at all other users.`));
  }
  byId("reason").replaceChildren(...nodes);
}

function pick(user, place) {
  state.user = (user + data.users.length) % data.users.length;
  state.place = place;
  byId("user").value = data.users[state.user].user;
  renderSuspicious();
  renderUser();
  const row = byId("history").querySelector('[aria-selected="true"]');
  if (row) byId("history").scrollTop = row.offsetTop - byId("history").offsetTop - 80;
}

// the most suspicious place of a user
const worstOf = (own) => own.posterior.indexOf(Math.max(...own.posterior));

function pickUser(number) {
  const at = (number + data.users.length) % data.users.length;
  pick(at, worstOf(data.users[at]));
}

function onKey(event) {
  const step = { ArrowDown: -1, ArrowUp: 1 }[event.key];
  if (step === undefined || state.place === null) return;
  event.preventDefault();
  const last = data.users[state.user].item.length - 1;
  pick(state.user, Math.min(last, Math.max(0, state.place + step)));
  byId("history").querySelector('[aria-selected="true"]').focus();
}

function setUp() {
  const slider = byId("threshold");
  slider.max = String(Math.max(0, grid.length - 1));
  slider.value = String(state.cut);
  slider.disabled = grid.length === 0 || data.bound === 0;
  slider.addEventListener("input", () => {
    state.cut = Number(slider.value);
    renderCut();
    renderSuspicious();
    renderUser();
  });
  byId("user-list").replaceChildren(...data.users.map((own) => element("option", { value: own.user })));
  const places = new Map(data.users.map((own, number) => [own.user, number]));
  byId("user").addEventListener("input", (event) => {
    const wanted = event.target.value.trim();
    if (places.has(wanted)) pickUser(places.get(wanted));
    else byId("user-note").textContent = `This page has no user ${wanted}.`;
  });
  byId("previous").addEventListener("click", () => pickUser(state.user - 1));
  byId("following").addEventListener("click", () => pickUser(state.user + 1));
  byId("history").addEventListener("keydown", onKey);
  byId("more").addEventListener("click", () => { state.shown += 50; renderSuspicious(); });
  byId("noise-key").hidden = data.known === null;
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(renderCut);
  });
  renderStory();
  renderCut();
  const first = data.suspicious.find((found) => found.number !== null);
  pick(first.number, first.place);
}

setUp();
