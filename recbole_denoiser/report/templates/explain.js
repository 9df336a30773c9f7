// The explain page: one state, one render. `data` is what recbole_denoiser.explain wrote.
const data = JSON.parse(byId("data").textContent);
// edit: what is changed in the history: null, {out: position}, {back: number of a removed item} or {all: true}
const state = {
  user: data.start, layer: data.layers.length - 1, head: "mean", scope: "selected", position: null, removed: null,
  edit: null,
};

const user = () => data.users[state.user];
const name = (entry) => entry.title || entry.item;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// ---- what the chosen layer and head do ----

// {weight, before, cut} of a link, or null where the position cannot read that far
function link(query, key, layer = state.layer, head = state.head) {
  const { attention, gate } = user().layers[layer];
  if (key >= attention[0][query].length) return null;
  const heads = head === "mean" ? attention.map((_, number) => number) : [head];
  const before = heads.map((number) => attention[number][query][key]);
  const open = heads.map((number) => (gate ? gate[gate.length === 1 ? 0 : number][query][key] : 1));
  return {
    query, key,
    before: mean(before),
    weight: mean(before.map((value, place) => value * open[place])),
    cut: open.every((value) => value === 0),
  };
}

function linksOf(query, layer, head) {
  return user().items.map((_, key) => link(query, key, layer, head)).filter((entry) => entry !== null);
}

function allLinks(layer, head) {
  return user().items.flatMap((_, query) => linksOf(query, layer, head));
}

const MOST_ARCS = 400;

function strongest(links) {
  return links.length <= MOST_ARCS ? links : links.sort((a, b) => b.weight - a.weight).slice(0, MOST_ARCS);
}

function keptShare(layer) {
  const links = allLinks(layer, "mean");
  return links.filter((entry) => !entry.cut).length / links.length;
}

// ---- controls ----

function choices(id, options, current, choose) {
  const field = byId(id);
  const legend = field.querySelector("legend");
  field.replaceChildren(legend, ...options.map(([value, text]) =>
    element("label", { class: "choice" },
      element("input", {
        type: "radio", name: id, value, checked: value === current,
        onchange: () => {
          choose(value);
          render();
          field.querySelector("input:checked").focus(); // render made new buttons
        },
      }),
      element("span", {}, text))));
}

function setUp() {
  byId("heading").textContent = `What ${data.label} reads, and what it ignores`;
  byId("facts").textContent = `${data.dataset} · run ${data.run}` +
    (data.mask ? ` · ${data.mask} masks` : " · no masks") +
    (data.noise ? ` · ${percent(data.noise)} training noise` : "");
  byId("user").replaceChildren(...data.users.map((entry, number) => element("option", { value: number }, entry.user)));
  byId("user").addEventListener("change", (event) => pickUser(Number(event.target.value)));
  byId("previous").addEventListener("click", () => pickUser(state.user - 1));
  byId("following").addEventListener("click", () => pickUser(state.user + 1));
  byId("items").addEventListener("keydown", onKey);
  byId("matrix").addEventListener("keydown", onKey);
  byId("matrix").addEventListener("click", (event) => {
    pick(cellAt(byId("matrix"), event, user().items.length)[0], false);
  });
  byId("matrix").addEventListener("mousemove", (event) => {
    noteCell(...cellAt(byId("matrix"), event, user().items.length));
  });
  byId("matrix").addEventListener("mouseleave", () => noteCell(null, null));
  document.body.classList.toggle("no-masks", data.mask === null);
  for (const node of document.querySelectorAll(".cut-only")) node.hidden = data.mask === null;
  for (const node of document.querySelectorAll(".noise-only")) node.hidden = !data.noise;
  byId("mask-panel").hidden = data.mask === null;
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  });
  themeListeners.push(draw);
  byId("same").hidden = data.masks === null;
  for (const node of document.querySelectorAll(".removed-only")) {
    node.hidden = !data.users.some((entry) => entry.removed.length);
  }
  pickUser(data.start);
}

function pickUser(number) {
  state.user = (number + data.users.length) % data.users.length;
  state.position = user().last;
  state.removed = null;
  state.edit = null;
  byId("user").value = String(state.user);
  render();
}

function pick(position, focus) {
  state.removed = null;
  state.position = Math.min(user().items.length - 1, Math.max(0, position));
  render();
  if (focus) byId("items").querySelector('[aria-selected="true"]').focus();
}

// the list shows the newest position on top, so that Down goes to older ones
function onKey(event) {
  const older = event.currentTarget.id === "items" ? "ArrowDown" : "ArrowUp";
  const newer = event.currentTarget.id === "items" ? "ArrowUp" : "ArrowDown";
  const targets = { [older]: state.position - 1, [newer]: state.position + 1, Home: user().items.length - 1, End: 0 };
  if (!(event.key in targets)) return;
  event.preventDefault();
  pick(targets[event.key], event.currentTarget.id === "items");
}

// ---- panels ----

function render() {
  choices("layers", data.layers.map((_, number) => [number, String(number + 1) +
    (data.mask ? ` (${percent(keptShare(number))} kept)` : "")]), state.layer, (value) => { state.layer = value; });
  const heads = user().layers[state.layer].attention.length;
  if (state.head !== "mean" && state.head >= heads) state.head = "mean";
  choices("heads", [["mean", "mean"], ...Array.from({ length: heads }, (_, number) => [number, String(number + 1)])],
    state.head, (value) => { state.head = value; });
  const many = allLinks().length > MOST_ARCS;
  choices("scope", [["selected", "the picked item"], ["all", many ? `all (strongest ${MOST_ARCS})` : "all"]],
    state.scope, (value) => { state.scope = value; });
  renderStory();
  renderItems();
  renderDetail();
  renderLists();
  draw();
}

function renderStory() {
  const { items, on, off, next } = user();
  byId("story").textContent = `User ${user().user}. ${user().story}`;
  const parts = [];
  if (data.mask) {
    const cut = data.layers.map((_, number) => `${percent(1 - keptShare(number))} in layer ${number + 1}`);
    parts.push(`Of the links between ${items.length} positions the masks cut ${cut.join(", ")}.`);
  }
  if (off) {
    const staying = on.filter((entry) => off.some((other) => other.item === entry.item)).length;
    parts.push(`${staying} of the first ${on.length} recommendations are the same without masks.`);
  }
  byId("more").textContent = parts.join(" ");
  byId("next").textContent = next
    ? `What came next: ${name(next)}, rank ${next.rank}` +
      (next.rank_off ? ` with masks, ${next.rank_off} without.` : ".")
    : "";
}

function renderItems() {
  const { items, contribution, contribution_off: plain } = user();
  const reads = new Map(linksOf(state.position).map((entry) => [entry.key, entry]));
  const most = Math.max(0.001, ...[...reads.values()].map((entry) => entry.before));
  const shares = contribution || [];
  const others = (values) => values.filter((_, position) => position !== user().last);
  const largest = Math.max(0.001, ...others(shares), ...others(plain || []));
  const rows = [];
  items.forEach((item, position) => {
    rows.push(...removedRows(position));
    const read = reads.get(position);
    rows.push(element("li", {
      role: "option", id: `item-${position}`,
      class: "row" + (read ? (read.cut ? " cut" : "") : " later") + (isOut(position) ? " out" : ""),
      "aria-selected": String(state.removed === null && position === state.position),
      tabindex: position === state.position ? 0 : -1, onclick: () => pick(position, true),
    },
    element("span", { class: "number" }, String(position + 1)),
    element("span", { class: "name" }, element("span", { class: "title" }, name(item)), " ",
      item.noise ? element("span", { class: "tag noise" }, `noise, was ${name(item.noise)}`) : null,
      element("span", { class: "meta" }, [item.title ? item.item : "", item.when].filter(Boolean).join(" · ")),
      read && read.cut && contribution && shares[position] >= 0.005
        ? element("span", { class: "meta" }, throughOthers(position)) : null),
    weightBar(read, most),
    contribution ? shareBar(shares[position], plain ? plain[position] : null, largest) : element("span")));
  });
  rows.push(...removedRows(items.length));
  byId("items").replaceChildren(...rows.reverse());
  byId("share-head").textContent = contribution ? "share" : "";
  byId("share-note").textContent = contribution
    ? "reads: attention weight of the picked position after the mask (striped: what the mask took away). share: how much of the " +
      "predicting state comes from the item through all layers (attention rollout with residuals; the predicting " +
      "position keeps most of itself, and its bar is cut off)" +
      (plain ? "; the thin line is the share without masks." : ".")
    : "";
}

// a cut link and a share beside it look like a contradiction
function throughOthers(position) {
  return position === state.position
    ? "its own link is cut; the share is what the position keeps of itself, around the attention"
    : `not read by position ${state.position + 1}; its share gets there through other positions`;
}

function bar(kind, length, text, mark) {
  const track = element("span", { class: "track" }, element("i"), mark === null ? null : element("u"));
  track.firstChild.style.width = `${100 * length}%`;
  if (mark !== null) track.children[1].style.left = `${100 * mark}%`;
  return element("span", { class: "bar " + kind }, track, element("b", {}, text));
}

function weightBar(read, most) {
  if (!read) return element("span");
  return read.cut ? bar("weight cut", read.before / most, "not read", null)
    : bar("weight", read.weight / most, read.weight.toFixed(3), null);
}

function shareBar(share, plain, largest) {
  const length = (value) => Math.min(1, value / largest);
  return bar("share", length(share), percent(share), plain === null ? null : length(plain));
}

// ---- figures ----

function draw() {
  if (state.position === null) return;
  const centres = user().items.map((_, position) => {
    const row = byId(`item-${position}`);
    return row.offsetTop + row.offsetHeight / 2;
  });
  const selected = linksOf(state.position);
  drawArcs(byId("arcs"), centres, state.scope === "all" ? strongest(allLinks()) : selected, state.scope === "all");
  const count = user().items.length;
  const links = allLinks();
  const highest = Math.max(0.001, ...links.filter((entry) => entry.query !== entry.key).map((entry) => entry.before));
  const table = new Map(links.map((entry) => [entry.query * count + entry.key, entry]));
  drawMatrix(byId("matrix"), count, (query, key) => {
    const entry = table.get(query * count + key);
    return entry ? { level: Math.sqrt(entry.weight / highest), cut: entry.cut } : null;
  }, state.position);
  byId("matrix").setAttribute("aria-label", `Attention of ${count} positions in layer ${state.layer + 1}; ` +
    `position ${state.position + 1} is picked. Arrow keys pick another one.`);
  noteCell(null, null);
  if (data.mask) drawMask();
}

function noteCell(query, key) {
  const entry = query === null ? null : link(query, key);
  const { items } = user();
  byId("matrix-note").textContent = query === null
    ? "Row: the position that reads. Column: the one that is read, oldest first." +
      (data.mask ? " A cross is a cut link." : "") + " Click a row to pick it."
    : `${query + 1}. ${name(items[query])} reads ${key + 1}. ${name(items[key])}: ` +
      (entry === null ? "not possible, it comes later" : entry.cut ? `cut (weight ${entry.before.toFixed(3)} before)` :
        entry.weight.toFixed(3));
}

function drawMask() {
  const own = data.masks === null ? user().layers[state.layer].gate : data.masks[state.layer];
  const heads = own.length === 1 || state.head === "mean" ? own : [own[state.head]];
  const count = own[0].length;
  drawMatrix(byId("mask"), count, (query, key) => {
    if (key >= heads[0][query].length) return null;
    const open = mean(heads.map((head) => head[query][key]));
    const cut = heads.every((head) => head[query][key] === 0);
    return { level: Math.max(0.12, (open - 0.5) * 2), cut };
  }, null);
  byId("mask-title").textContent = `Mask of layer ${state.layer + 1}`;
  byId("mask-note").textContent = data.masks === null
    ? "A content mask depends on the items: this is the gate for this user's history. Darker is more open."
    : `A position mask is the same for every user: the gate for all ${count} positions, the newest last. ` +
      "Darker is more open.";
  byId("mask").setAttribute("aria-label", byId("mask-note").textContent);
}

setUp();
