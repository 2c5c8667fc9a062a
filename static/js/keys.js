// Keyboard: one table feeds the handler and the help. No key changes anything on the server, none
// works while somebody types, and all single keys can be switched off.

import { applyNow, togglePause } from "./live.js";
import { toggleZone } from "./time.js";

const OFF_KEY = "daylight-keys"; // "off" when single keys are switched off
const SEQUENCE_MS = 1200;

const follow = (selector) => () => document.querySelector(selector)?.click();

const KEYS = [
  ["?", "Show this help", showHelp],
  ["v", "Show or hide filtered records", follow("[data-lens-toggle]")],
  ["r", "Apply waiting updates, refresh", applyNow],
  ["p", "Pause or resume live updates", togglePause],
  ["t", "Times in UTC or in local time", toggleZone],
  ["/", "Go to the first filter", () => document.querySelector("[data-filters] input:not([type=hidden])")?.focus()],
  ["j", "Next row", () => step(1)],
  ["k", "Previous row", () => step(-1)],
  ["[", "Previous instance of a mapped task", follow(".beside [rel=prev]")],
  ["]", "Next instance of a mapped task", follow(".beside [rel=next]")],
];

function places() {
  return [...document.querySelectorAll(".rail a[data-key]")].map((link) => [
    `g ${link.dataset.key}`,
    `Go to ${link.textContent.trim()}`,
    () => link.click(),
  ]);
}

function step(by) {
  const rows = [...document.querySelectorAll("#page .records tbody .lead a")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
  rows[next].focus();
}

function isOff() {
  try {
    return localStorage.getItem(OFF_KEY) === "off";
  } catch {
    return false; // storage may be forbidden
  }
}

function showHelp() {
  const help = document.getElementById("keys-help");
  if (!help || help.open) return;
  const body = help.querySelector("tbody");
  body.replaceChildren(
    ...[...KEYS, ...places()].map(([key, text]) => {
      const row = document.createElement("tr");
      const shown = row.insertCell();
      for (const one of key.split(" ")) {
        const cap = document.createElement("kbd");
        cap.textContent = one;
        shown.append(cap, " ");
      }
      row.insertCell().textContent = text;
      return row;
    }),
  );
  const box = help.querySelector("input");
  box.checked = !isOff();
  box.onchange = () => {
    try {
      localStorage.setItem(OFF_KEY, box.checked ? "on" : "off");
    } catch {
      // without storage the choice lasts for this page only
    }
  };
  help.showModal();
}

function isTyping(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

export function startKeys() {
  let first = "";
  let firstAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]") || isOff()) return;
    const pressed = Date.now() - firstAt < SEQUENCE_MS && first ? `${first} ${event.key}` : event.key;
    first = event.key === "g" ? "g" : "";
    firstAt = Date.now();
    const found = [...KEYS, ...places()].find(([key]) => key === pressed);
    if (!found) return;
    event.preventDefault();
    first = "";
    found[2]();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys-help]")) showHelp();
    if (event.target.closest("[data-close-dialog]")) event.target.closest("dialog").close();
  });
}
