// Live pages: one websocket a tab carries signals ("run:12 changed, revision 99"), never content.
// The page asks for its own address again and morphs the answer in, so a lost, late or reordered
// signal cannot show a wrong state. Without a socket it polls.

import { learnServerTime, paintTimes, shortTime, serverNow, zone } from "./time.js";

const COALESCE_MS = 400;
const JITTER = 0.3; // share of every wait
const CONTACT_LOST_MS = 30_000; // the server beats every 20 s
const POLL_MS = 10_000;
const POLL_IDLE_MS = 60_000; // when nobody has touched the page for IDLE_AFTER_MS
const IDLE_AFTER_MS = 15 * 60_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 60_000;
const HIDDEN_CLOSE_MS = 5000;
const CHECK_MS = 1000;
const SIGNED_OUT = 4401; // the close code of a session that ended

const seen = new Map(); // topic -> newest revision heard of
let socket = null;
let socketOpen = false;
let failures = 0; // sockets that did not open, since one did
let retryMs = RETRY_MIN_MS;
let retryTimer = 0;
let refreshTimer = 0;
let lastContact = Date.now();
let lastTouch = Date.now();
let lastPoll = Date.now();
let pointerDown = false;
let paused = false;
let waiting = 0; // signals that are held back
let asked = false; // a person asked for the next refresh: holding is over
let etag = "";
let feed = "live"; // what the server says: "polling" while it hears of no changes itself

const region = () => document.querySelector("[data-topics]");
const chip = () => document.getElementById("live");
const topics = () => (region()?.dataset.topics ?? "").split(" ").filter(Boolean);
// What other modules follow for themselves: logs that still grow.
const others = () => [...document.querySelectorAll("[data-log-topic]")].map((e) => e.dataset.logTopic);
const jittered = (ms) => ms * (1 + Math.random() * JITTER);

function revision() {
  return Number(region()?.dataset.rev ?? 0);
}

/** Why the page must not change under the hands of its reader; empty when it may. */
function holdReason() {
  const page = region();
  if (!page) return "";
  if (document.querySelector("dialog[open], details.menu[open]")) return "a menu is open";
  if (pointerDown) return "the pointer is down";
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && page.contains(selection.anchorNode)) return "text is selected";
  for (const field of page.querySelectorAll("input, textarea, select")) {
    if (field.type === "checkbox" || field.type === "radio") {
      if (field.checked !== field.defaultChecked) return "something is ticked";
    } else if (field.matches("select")) {
      if (field === document.activeElement) return "a list is open";
    } else if (field.type !== "hidden" && field.value !== field.defaultValue) {
      return "something is typed";
    }
  }
  return "";
}

function schedule(delay = COALESCE_MS) {
  if (!refreshTimer) refreshTimer = setTimeout(refresh, jittered(delay));
}

function refresh() {
  refreshTimer = 0;
  const page = region();
  if (!page || document.hidden) return;
  if (!asked && (paused || holdReason())) {
    waiting += 1;
    paint();
    return;
  }
  asked = false;
  waiting = 0;
  lastPoll = Math.max(lastPoll, Date.now());
  window.htmx.trigger(page, "live:refresh");
  paint();
}

/** The page is refreshed now, whatever holds it. */
export function applyNow() {
  asked = true;
  clearTimeout(refreshTimer);
  refresh();
}

export function togglePause() {
  paused = !paused;
  if (!paused) applyNow();
  paint();
}

function hear(topic, rev) {
  if (!topics().includes(topic)) return;
  if (rev <= (seen.get(topic) ?? 0)) return;
  seen.set(topic, rev);
  if (rev > revision()) schedule();
}

function onMessage(event) {
  let message;
  try {
    message = JSON.parse(event.data);
  } catch {
    return; // not ours
  }
  lastContact = Date.now();
  if (message.error) console.warn(`live: ${message.error}`);
  if (message.mode) feed = message.mode;
  if (message.t) hear(message.t, Number(message.rev));
  for (const [topic, rev] of Object.entries(message.hb ?? {})) hear(topic, Number(rev));
  document.dispatchEvent(new CustomEvent("daylight:signal", { detail: message }));
  paint();
}

function connect() {
  clearTimeout(retryTimer);
  if (socket || document.hidden || !topics().length) return;
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const opened = new WebSocket(`${scheme}//${location.host}/ws/live`);
  socket = opened;
  opened.onopen = () => {
    socketOpen = true;
    failures = 0;
    retryMs = RETRY_MIN_MS;
    lastContact = Date.now();
    follow();
    schedule(); // what happened while we were away
    paint();
  };
  opened.onmessage = onMessage;
  opened.onclose = (event) => {
    if (socket !== opened) return;
    failures += socketOpen ? 0 : 1;
    if (event.code === SIGNED_OUT) location.reload();
    socket = null;
    socketOpen = false;
    retryTimer = setTimeout(connect, jittered(retryMs));
    retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
    paint();
  };
}

let followed = "";

/** The server knows the topics that this page shows now. */
function follow(again = true) {
  const wanted = JSON.stringify({ sub: [...topics(), ...others()] });
  if (!socketOpen || (!again && wanted === followed)) return;
  followed = wanted;
  socket.send(wanted);
}

function disconnect() {
  clearTimeout(retryTimer);
  const old = socket;
  socket = null;
  socketOpen = false;
  old?.close();
}

function check() {
  const now = Date.now();
  if (!region()) return;
  if (socketOpen && now - lastContact > CONTACT_LOST_MS) {
    disconnect();
    connect();
  }
  const wait = now - lastTouch > IDLE_AFTER_MS ? POLL_IDLE_MS : POLL_MS;
  // Where the server hears of no changes itself, an open socket is no reason to wait for them.
  const polls = !socketOpen || feed === "polling";
  if (polls && !document.hidden && now - lastPoll > wait) {
    lastPoll = now + Math.random() * JITTER * wait;
    schedule(0);
  }
  if (waiting && !paused && !holdReason()) schedule();
  region().toggleAttribute("data-stale", now - lastContact > CONTACT_LOST_MS);
  paint();
}

function mode() {
  if (paused) return "paused";
  if (socketOpen) return feed;
  if (!failures) return "connecting";
  return Date.now() - lastContact > CONTACT_LOST_MS ? "reconnecting" : "polling";
}

function words(current) {
  if (waiting) return `${waiting} update${waiting === 1 ? "" : "s"} waiting · apply (r)`;
  const asOf = shortTime(new Date(serverNow() - (Date.now() - lastContact)), zone()).split(" ").at(-1);
  return {
    connecting: "Connecting…",
    live: "Live",
    polling: `Polling ${POLL_MS / 1000} s`,
    paused: "Paused (p)",
    reconnecting: `Reconnecting… as of ${asOf}`,
  }[current];
}

function paint() {
  const element = chip();
  if (!element) return;
  const current = mode();
  const text = words(current);
  element.hidden = false;
  element.dataset.mode = current;
  element.toggleAttribute("data-waiting", waiting > 0);
  const label = element.querySelector(".words");
  if (label.textContent !== text) label.textContent = text;
}

function watchSwaps() {
  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceElement !== region()) return;
    ctx.request.cache = "no-store"; // so that an unchanged page is seen as 304
    if (etag) ctx.request.headers["If-None-Match"] = etag;
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceElement !== region()) return;
    const answer = ctx.response;
    if (answer.status === 304 || answer.status >= 400) return; // htmx swaps neither
    const rev = Number(answer.headers.get("Daylight-Rev"));
    if (answer.raw.redirected || !rev) {
      event.preventDefault();
      location.reload(); // signed out
    } else if (rev < revision()) {
      event.preventDefault(); // an older picture came late
    } else {
      etag = answer.headers.get("ETag") ?? "";
      region().dataset.rev = String(rev);
    }
  });
  document.addEventListener("htmx:after:request", (event) => {
    const { ctx } = event.detail;
    const rev = Number(ctx.response.headers.get("Daylight-Rev"));
    if (ctx.sourceElement !== region() || !rev) return;
    lastContact = Date.now();
    learnServerTime(rev / 1000);
    if (ctx.response.status === 304) region().dataset.rev = String(Math.max(rev, revision()));
  });
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.sourceElement !== region()) return;
    paintTimes(region());
    follow(false);
  });
}

export function startLive() {
  if (!region() || !window.htmx) return;
  watchSwaps();
  for (const kind of ["pointerdown", "keydown"]) {
    document.addEventListener(kind, () => (lastTouch = Date.now()), true);
  }
  document.addEventListener("pointerdown", () => (pointerDown = true), true);
  for (const kind of ["pointerup", "pointercancel", "dragend"]) {
    document.addEventListener(kind, () => (pointerDown = false), true);
  }
  let hiddenTimer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) {
      hiddenTimer = setTimeout(disconnect, HIDDEN_CLOSE_MS);
    } else {
      retryMs = RETRY_MIN_MS;
      connect();
      schedule();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("#live")) (waiting ? applyNow : togglePause)();
  });
  setInterval(check, CHECK_MS);
  connect();
  paint();
}
