// Times and durations: every <time> in the chosen zone, running durations by the server's clock.
// A wrong clock of the laptop does not matter: only differences to the server's time are used.

const ZONE_KEY = "daylight-zone"; // "utc" (default) or "local"
const TICK_MS = 1000;

let offsetMs = 0; // server clock minus our clock

const FORMATS = {
  utc: new Intl.DateTimeFormat("en-GB", formatOptions("UTC")),
  local: new Intl.DateTimeFormat("en-GB", formatOptions(undefined)),
};
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1000],
];

function formatOptions(timeZone) {
  return {
    timeZone,
    year: "numeric",
    month: "short",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
    timeZoneName: "short",
  };
}

/** The server's time now, in milliseconds since the epoch. */
export function serverNow() {
  return Date.now() + offsetMs;
}

/** The clock offset follows this reading of the server's clock. */
export function learnServerTime(epochMs) {
  if (Number.isFinite(epochMs)) offsetMs = epochMs - Date.now();
}

/** "utc" or "local". */
export function zone() {
  try {
    return localStorage.getItem(ZONE_KEY) === "local" ? "local" : "utc";
  } catch {
    return "utc"; // storage may be forbidden
  }
}

function parts(date, which) {
  const found = {};
  for (const { type, value } of FORMATS[which].formatToParts(date)) found[type] = value;
  return found;
}

/** "29 Nov 02:11:05", as the server writes it; with the year when it is not this one. */
export function shortTime(date, which) {
  const p = parts(date, which);
  const year = p.year === parts(new Date(serverNow()), which).year ? "" : ` ${p.year}`;
  return `${p.day} ${p.month}${year} ${p.hour}:${p.minute}:${p.second}`;
}

function zoneName(which) {
  return which === "utc" ? "UTC" : parts(new Date(), "local").timeZoneName;
}

function fullTime(date, which) {
  const p = parts(date, which);
  return `${p.day} ${p.month} ${p.year} ${p.hour}:${p.minute}:${p.second}.${p.fractionalSecond} ${zoneName(which)}`;
}

function relative(date) {
  const distance = date.getTime() - serverNow();
  const [unit, size] = UNITS.find(([, size]) => Math.abs(distance) >= size) ?? UNITS.at(-1);
  return RELATIVE.format(Math.round(distance / size), unit);
}

/** "4 m 12 s", as the server writes it. */
export function duration(ms) {
  const seconds = Math.max(0, ms / 1000);
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** Every time under ``root`` is written in the chosen zone. */
export function paintTimes(root = document) {
  const which = zone();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const date = new Date(element.dateTime);
    if (!Number.isNaN(date.getTime())) element.textContent = shortTime(date, which);
  }
  const name = zoneName(which);
  for (const element of root.querySelectorAll("[data-zone-name]")) element.textContent = name;
}

/** The other zone is in force, here and on the next page. */
export function toggleZone() {
  try {
    localStorage.setItem(ZONE_KEY, zone() === "utc" ? "local" : "utc");
  } catch {
    return; // without storage there is one zone
  }
  paintTimes();
}

function tick() {
  for (const element of document.querySelectorAll("[data-since]")) {
    element.textContent = duration(serverNow() - Date.parse(element.dataset.since));
  }
  for (const element of document.querySelectorAll("[data-until]")) {
    element.textContent = duration(Date.parse(element.dataset.until) - serverNow());
  }
}

export function startTimes() {
  learnServerTime(Date.parse(document.documentElement.dataset.now ?? ""));
  paintTimes();
  setInterval(tick, TICK_MS);
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-zone-toggle]")) toggleZone();
  });
  // All forms of a time, when somebody asks for them.
  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const element = event.target.closest?.("time[datetime]");
      if (!element) return;
      const date = new Date(element.dateTime);
      element.title = [fullTime(date, "utc"), fullTime(date, "local"), relative(date)].join("\n");
    });
  }
}
