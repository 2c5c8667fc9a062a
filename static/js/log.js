// The live tail of a log: asks for the bytes after those it has, and adds them as text. Terminal
// colours become classes; every other control sequence is dropped. Nothing is ever parsed as HTML.

const TAIL_MS = 1000; // after news; a signal asks at once
const TAIL_QUIET_MS = 4000; // when nothing came, and no signal either
const SIGNAL_MS = 150; // so long several signals are one question
const LINES_MAX = 5000; // in the page; the download has all
const STICK_PX = 24; // so near to the end counts as reading the end

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const STYLES = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse" };
// CSI, OSC (up to BEL or ST) and the two-byte escapes; SGR is the CSI that ends in "m".
const ESCAPE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

class Terminal {
  constructor() {
    this.classes = new Set();
    this.colour = "";
  }

  /** The pieces of a line: [text, class names]. The style carries over to the next line. */
  pieces(line) {
    const found = [];
    let at = 0;
    for (const match of line.matchAll(ESCAPE)) {
      this.#add(found, line.slice(at, match.index));
      if (match[2] === "m") this.#style(match[1].split(/[;:]/).map(Number));
      at = match.index + match[0].length;
    }
    this.#add(found, line.slice(at));
    return found;
  }

  #add(found, text) {
    if (!text) return;
    const names = [...this.classes, this.colour].filter(Boolean);
    found.push([text, names.map((name) => `ansi-${name}`).join(" ")]);
  }

  #style(codes) {
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) {
        this.classes.clear();
        this.colour = "";
      } else if (STYLES[code]) this.classes.add(STYLES[code]);
      else if (code === 22) ["bold", "faint"].forEach((name) => this.classes.delete(name));
      else if (code === 23) this.classes.delete("italic");
      else if (code === 24) this.classes.delete("underline");
      else if (code === 27) this.classes.delete("inverse");
      else if (code >= 30 && code <= 37) this.colour = COLOURS[code - 30];
      else if (code >= 90 && code <= 97) this.colour = COLOURS[code - 90];
      else if (code === 39) this.colour = "";
      else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : 4; // exact colours: the ink stays
    }
  }
}

class Tail {
  constructor(element) {
    this.element = element;
    this.url = element.dataset.log;
    this.offset = Number(element.dataset.offset);
    this.live = element.dataset.live === "1";
    this.decoder = new TextDecoder("utf-8");
    this.terminal = new Terminal();
    this.open = null; // the last line, while it has no end
    this.fresh = 0; // lines added while the reader was elsewhere
    this.status = document.getElementById("log-status");
    this.follow = document.getElementById("log-follow");
    this.quiet = element.parentElement.querySelector(".empty");
    this.#repaint();
    this.follow?.addEventListener("change", () => this.follow.checked && this.#toEnd());
    element.addEventListener("scroll", () => this.#scrolled());
    if (this.follow?.checked) this.#toEnd();
    this.timer = 0;
    document.addEventListener("daylight:signal", (event) => {
      if (event.detail.t === element.dataset.logTopic && this.live) this.#askIn(SIGNAL_MS);
    });
    if (this.live || this.again) this.#ask();
  }

  /** The text of the page as lines; read anew when the page had to leave colours out. */
  #repaint() {
    const text = this.element.textContent;
    this.again = this.element.dataset.coloured === "1";
    if (this.again) {
      this.offset = Number(this.element.dataset.start);
      return;
    }
    this.element.replaceChildren();
    this.#append(text);
    this.fresh = 0;
  }

  #askIn(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#ask(), ms);
  }

  async #ask() {
    if (this.asking) return;
    this.asking = true;
    let wait = TAIL_QUIET_MS;
    try {
      if (!document.hidden) {
        const answer = await fetch(`${this.url}?from=${this.offset}`, { cache: "no-store" });
        if (answer.ok && !answer.redirected) {
          const bytes = new Uint8Array(await answer.arrayBuffer());
          this.offset = Number(answer.headers.get("Daylight-Log-Next") ?? this.offset + bytes.length);
          this.live = answer.headers.get("Daylight-Log-Live") === "1";
          const text = this.decoder.decode(bytes, { stream: this.live });
          if (this.again) this.element.replaceChildren();
          this.again = false;
          this.#append(text);
          if (bytes.length) wait = TAIL_MS;
        }
      }
    } catch {
      // the network is away: asked again below, the page's chip says so
    }
    this.asking = false;
    if (!this.element.isConnected) return;
    if (this.live) this.#askIn(wait);
    this.#say();
  }

  #append(text) {
    if (!text) return;
    const stuck = this.follow?.checked;
    this.quiet?.remove();
    const lines = text.split("\n");
    for (const [index, line] of lines.entries()) {
      if (index > 0) {
        this.open = null;
        if (index === lines.length - 1 && line === "") break;
        this.fresh += 1;
      }
      if (!this.open) {
        this.open = document.createElement("span");
        this.open.className = "line";
        this.element.append(this.open);
      }
      for (const [piece, names] of this.terminal.pieces(line.replace(/\r$/, ""))) {
        const span = document.createElement("span");
        if (names) span.className = names;
        span.textContent = piece;
        this.open.append(span);
      }
    }
    while (this.element.childElementCount > LINES_MAX) this.element.firstElementChild.remove();
    if (stuck) this.#toEnd();
  }

  #scrolled() {
    const left = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight;
    if (!this.follow) return;
    if (left > STICK_PX && this.follow.checked && !this.jumping) this.follow.checked = false;
    if (left <= STICK_PX) this.fresh = 0;
    this.#say();
  }

  #toEnd() {
    this.jumping = true;
    this.element.scrollTop = this.element.scrollHeight;
    this.fresh = 0;
    requestAnimationFrame(() => requestAnimationFrame(() => (this.jumping = false)));
    this.#say();
  }

  #say() {
    if (!this.status) return;
    const news = this.fresh && !this.follow?.checked ? `${this.fresh} new line${this.fresh === 1 ? "" : "s"} ↓` : "";
    const text = news || (this.live ? "following" : "ended");
    if (this.status.textContent !== text) this.status.textContent = text;
  }
}

const started = new WeakSet();

function startNew() {
  for (const element of document.querySelectorAll("pre[data-log]")) {
    if (started.has(element)) continue;
    started.add(element);
    new Tail(element);
  }
}

export function startLogs() {
  startNew();
  document.addEventListener("htmx:after:swap", startNew); // another attempt became current
}
