// The picked item, and what would change: lists for every item that is taken out or put back were computed beforehand.

function isOut(position) { return state.edit !== null && state.edit.out === position; }

function isBack(number) { return state.edit !== null && (state.edit.all || state.edit.back === number); }

// {variant, words} of the chosen change, or null
function changed() {
  if (state.edit === null) return null;
  if (state.edit.all) return { variant: user().back, words: "everything back" };
  if (state.edit.out !== undefined) {
    return { variant: user().out[state.edit.out], words: `without ${name(user().items[state.edit.out])}` };
  }
  return { variant: user().removed[state.edit.back].back, words: `with ${name(user().removed[state.edit.back])} back` };
}

function edit(change) {
  state.edit = change;
  render();
}

// ---- removed items, in place ----

function removedRows(place) {
  return user().removed.flatMap((item, number) => (item.place !== place ? [] : [element("li", {
    role: "option", id: `removed-${number}`, class: "row gone" + (isBack(number) ? " is-back" : ""), tabindex: 0,
    "aria-selected": String(state.removed === number),
    onclick: () => pickRemoved(number),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pickRemoved(number);
      byId(`removed-${number}`).focus();
    },
  },
  element("span", { class: "number" }, "–"),
  element("span", { class: "name" }, element("span", { class: "title" }, name(item)), " ",
    element("span", { class: "tag gone" }, isBack(number) ? "put back" : "removed"), " ",
    item.noise ? element("span", { class: "tag noise" }, `noise, was ${name(item.noise)}`) : null,
    element("span", { class: "meta" }, [item.title ? item.item : "", item.when].filter(Boolean).join(" · "))),
  element("span", { class: "why" }, shortReason(item)))]));
}

function shortReason(item) {
  const { others, never, around } = item.why;
  return `${percent(item.posterior)} noise: ` + (others === 0 ? "no other user has it" :
    `${never} of ${around} neighbours never stand near it elsewhere; others have it ${count(others)} ${others === 1 ? "time" : "times"}`);
}

function pickRemoved(number) {
  state.removed = number;
  render();
}

// ---- the picked item ----

function renderDetail() {
  byId("detail").replaceChildren(...present(state.removed === null ? positionDetail() : removedDetail()));
}

function whatIf(...buttons) { return element("p", { class: "what-if" }, ...buttons); }

function button(text, change) { return element("button", { type: "button", onclick: () => edit(change) }, text); }

function removedDetail() {
  const item = user().removed[state.removed];
  const { others, never, around, window, neighbours } = item.why;
  return [
    element("p", {}, element("strong", {}, name(item)), `: removed, noise with a probability of ${percent(item.posterior)}.`),
    element("p", {}, `${others === 0 ? "No other user has it" : `Others have it ${count(others)} times`}. Of the ` +
      `${around} items around it, ${never} never stand within ${window} places of it at any other user.`),
    element("ul", { class: "reads" }, ...neighbours.map((near) => element("li", {},
      element("span", {}, name(data.names[near.number])),
      element("span", { class: "muted small" }, `near it ${count(near.together)}×, by chance ${near.chance.toFixed(1)}×`)))),
    whatIf(isBack(state.removed) ? button("As it was", null) : button("Put it back", { back: state.removed }),
      user().removed.length > 1 && !(state.edit && state.edit.all) ? button("Put all back", { all: true }) : null),
  ];
}

function positionDetail() {
  const { items, without, on, out } = user();
  const item = items[state.position];
  const links = linksOf(state.position);
  const cut = links.filter((entry) => entry.cut).length;
  const best = links.filter((entry) => !entry.cut).sort((a, b) => b.weight - a.weight).slice(0, 4);
  const most = Math.max(0.001, ...best.map((entry) => entry.weight));
  const reads = best.map((entry) =>
    element("li", {}, element("span", {}, name(items[entry.key])), weightBar(entry, most)));
  const change = without[state.position].change;
  const effect = change.length ? `${change[0] < 0 ? "−" : "+"}${Math.abs(change[0]).toFixed(2)}` : "";
  const replaced = on.length && without[state.position].first.item !== on[0].item;
  return [
    element("p", {}, element("strong", {}, `${state.position + 1}. ${name(item)}`)),
    element("p", {}, data.mask
      ? `In layer ${state.layer + 1} it reads ${links.length - cut} of ${links.length} positions; ${cut} ` +
        `${cut === 1 ? "is" : "are"} cut.`
      : `In layer ${state.layer + 1} it reads ${links.length} positions.`),
    element("ul", { class: "reads" }, ...reads),
    !on.length || state.position === user().last ? null : element("p", {},
      "If no other position could read it, the score of ", element("em", {}, name(on[0])), " would change by ",
      element("span", { class: "change" }, effect),
      replaced ? ` and ${name(without[state.position].first)} would come first.` : "."),
    out[state.position] === null ? null
      : whatIf(isOut(state.position) ? button("Back into the history", null)
        : button("Take it out of the history", { out: state.position })),
  ];
}

// ---- recommendations ----

function renderLists() {
  const { on, off, next } = user();
  const other = changed();
  byId("lists").className = other || off ? "" : "one";
  if (other) {
    const entries = other.variant.top.map((number, place) =>
      ({ ...data.names[number], moved: other.variant.was[place] - place - 1 }));
    byId("lists").replaceChildren(list("As it is", on.map((entry) => ({ ...entry, moved: null }))),
      list(`Now, ${other.words}`, entries));
  } else {
    const moves = (entries) => entries.map((entry, place) => ({ ...entry, moved: off ? entry.other_rank - place - 1 : null }));
    byId("lists").replaceChildren(list(off ? "Masks on" : "As it is", moves(on)), ...(off ? [list("Masks off", moves(off))] : []));
  }
  byId("edit").replaceChildren(...(other ? [
    `Changed: ${other.words}.` + (next && other.variant.next
      ? ` ${name(next)}, which came next, moves from ${next.rank} to ${other.variant.next}. ` : " "),
    button("As it was", null)] : []));
}

function list(title, entries) {
  const next = user().next;
  const arrow = (by) => element("span", { class: "moved" + (by > 0 ? " up" : by < 0 ? " down" : "") },
    by === 0 ? "=" : by > 0 ? `▲ ${by}` : `▼ ${-by}`);
  return element("div", {}, element("h3", {}, title), element("ol", {}, ...entries.map((entry, place) =>
    element("li", {
      class: next && entry.item === next.item ? "hit" : "", title: entry.score === undefined ? null : `score ${entry.score}`,
    },
    element("span", { class: "number muted" }, String(place + 1)),
    element("span", { class: "name" }, name(entry), " ",
      next && entry.item === next.item ? element("span", { class: "tag next" }, "came next") : null),
    entry.moved === null ? element("span", { class: "moved" }, entry.score === undefined ? "" : entry.score.toFixed(2))
      : arrow(entry.moved)))));
}
