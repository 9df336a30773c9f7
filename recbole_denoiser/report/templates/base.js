"use strict";
// Text from data only ever becomes text nodes: nothing in a title can turn into markup.
function element(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

function present(nodes) { return nodes.filter((node) => node !== null && node !== undefined); }

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function byId(id) { return document.getElementById(id); }

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }

const themeListeners = [];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
  for (const listener of themeListeners) listener();
}

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(darkSystem.matches ? "dark" : "light");
darkSystem.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
byId("theme").addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

const percent = (share) => (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %";
const count = (number) => number.toLocaleString("en-US");
