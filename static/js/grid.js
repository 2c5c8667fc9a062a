// The grid of tasks and runs is one stop of the Tab key; arrows move within it.

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const cells = (row) => [...row.cells].map((cell) => cell.querySelector("a"));
const rows = (grid) => [...grid.rows].map(cells);

/** All links but one leave the order of the Tab key. */
function settle(grid) {
  const links = [...grid.querySelectorAll("a")];
  const kept = links.find((link) => link === document.activeElement) ?? links[0];
  for (const link of links) link.tabIndex = link === kept ? 0 : -1;
}

function go(grid, link) {
  for (const other of grid.querySelectorAll('a[tabindex="0"]')) other.tabIndex = -1;
  link.tabIndex = 0;
  link.focus();
}

function onKey(event) {
  const grid = event.target.closest?.("[data-grid]");
  if (!grid || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = rows(grid);
  const y = all.findIndex((row) => row.includes(event.target));
  if (y < 0) return;
  const x = all[y].indexOf(event.target);
  let target = null;
  if (event.key in MOVES) {
    const [down, right] = MOVES[event.key];
    // A run that has no such task is stepped over.
    for (let [j, i] = [y + down, x + right]; all[j] && i in all[j]; j += down, i += right) {
      if ((target = all[j][i])) break;
    }
  } else if (event.key === "Home") {
    target = all[y].find(Boolean);
  } else if (event.key === "End") {
    target = all[y].findLast(Boolean);
  } else {
    return;
  }
  event.preventDefault();
  if (target) go(grid, target);
}

export function startGrids() {
  const settleAll = () => document.querySelectorAll("[data-grid]").forEach(settle);
  settleAll();
  document.addEventListener("htmx:after:swap", settleAll);
  document.addEventListener("keydown", onKey);
}
