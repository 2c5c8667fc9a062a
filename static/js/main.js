// The one entry of every page: starts the modules. Each page works without it.
import { startGrids } from "./grid.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startLogs } from "./log.js";
import { startSheets } from "./sheet.js";
import { startTimes } from "./time.js";

startTimes();
startLive();
startLogs();
startKeys();
startSheets();
startGrids();

// On a narrow screen the filters stay folded until they are wanted.
if (matchMedia("(max-width: 768px)").matches) {
  for (const box of document.querySelectorAll(".filter-box:not([data-in-force])")) box.open = false;
}

// A filter form sends what was filled in, so that its address stays short.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-filters]")) return;
  const empty = [...form.elements].filter((field) => field.name && field.value === "");
  for (const field of empty) field.disabled = true;
  window.addEventListener("pageshow", () => {
    for (const field of empty) field.disabled = false;
  });
});

// One open menu at a time; Escape closes it and gives the focus back.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
