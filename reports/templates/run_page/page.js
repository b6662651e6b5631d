// What a script adds to a page that is complete without one: copy buttons, a time cursor, zoom.
"use strict";
(() => {
  const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

  // Copy buttons. On file:// the clipboard API may be refused: then the text is selected instead.
  for (const button of document.querySelectorAll("button.copy")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      let done = false;
      try {
        await navigator.clipboard.writeText(code.textContent);
        done = true;
      } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "copied" : "selected";
      setTimeout(() => (button.textContent = "copy"), 1600);
    });
  }

  // One moment for the whole page: the strip, the story, the messages, the log and the time views
  // show it, whoever was pointed at.
  const listeners = [];
  const moment = (seconds, from) => {
    for (const [own, hear] of listeners) if (own !== from) hear(seconds);
  };
  const nearest = (items, seconds) => {
    let best;
    for (const item of items) if (Number(item.dataset.t) <= seconds + 1e-6) best = item;
    return best;
  };
  for (const list of document.querySelectorAll(".story, svg.messages")) {
    const items = [...list.querySelectorAll("[data-t]")];
    const show = (item) => items.forEach((each) => each.classList.toggle("now", each === item));
    listeners.push([list, (seconds) => show(nearest(items, seconds))]);
    for (const item of items) {
      item.addEventListener("pointerenter", () => {
        show(item);
        moment(Number(item.dataset.t), list);
      });
    }
  }

  // A link into a folded section opens it.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    const folded = target.tagName === "SECTION" && target.querySelector(":scope > details");
    if (folded) folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // Everything in a view is placed by fractions of its axis, so a zoom changes two numbers: the
  // first fraction shown and the width shown. Drawings are cut by their viewBox.
  class View {
    constructor(root, controls) {
      this.root = root;
      this.start = Number(root.dataset.start);
      this.length = Number(root.dataset.end) - this.start;
      this.low = 0;
      this.width = 1;
      this.back = root.querySelector(".back");
      this.axis = root.querySelector(".axis .track");
      this.cursor = document.createElement("div");
      this.cursor.className = "cursor";
      this.cursor.append(document.createElement("span"));
      this.cursor.hidden = true;
      root.append(this.cursor);
      listeners.push([this, (seconds) => this.mark(seconds)]);
      this.listen(controls);
    }

    listen(controls) {
      controls.hidden = false;
      this.axis.title = "drag to zoom, double click for all";
      controls.addEventListener("click", (event) => {
        const how = event.target.dataset.zoom;
        if (how) this.act(how);
      });
      controls.addEventListener("keydown", (event) => {
        const how = { "+": "in", "-": "out", 0: "all", ArrowLeft: "left", ArrowRight: "right" };
        if (how[event.key]) { event.preventDefault(); this.act(how[event.key]); }
      });
      this.root.addEventListener("pointermove", (event) => this.point(event));
      this.root.addEventListener("pointerleave", () => (this.cursor.hidden = true));
      // A drag along the axis selects a window.
      this.axis.addEventListener("pointerdown", (event) => {
        this.from = this.at(event);
        this.axis.setPointerCapture(event.pointerId);
      });
      this.axis.addEventListener("pointerup", (event) => {
        if (this.from === undefined) return;
        const [a, b] = [this.from, this.at(event)].sort((x, y) => x - y);
        this.from = undefined;
        if (b - a > this.width / 100) this.show(a, b - a);
      });
      this.axis.addEventListener("dblclick", () => this.act("all"));
    }

    at(event) {
      const box = this.axis.getBoundingClientRect();
      return this.low + clamp((event.clientX - box.left) / box.width, 0, 1) * this.width;
    }

    act(how) {
      const { low, width } = this;
      if (how === "in") this.show(low + width / 4, width / 2);
      else if (how === "out") this.show(low - width / 2, width * 2);
      else if (how === "left") this.show(low - width / 3, width);
      else if (how === "right") this.show(low + width / 3, width);
      else this.show(0, 1);
    }

    show(low, width) {
      this.width = clamp(width, 0.002, 1);
      this.low = clamp(low, 0, 1 - this.width);
      this.root.style.setProperty("--z0", this.low);
      this.root.style.setProperty("--zw", this.width);
      for (const svg of this.root.querySelectorAll("svg")) {
        const height = svg.viewBox.baseVal.height;
        svg.setAttribute("viewBox", `${this.low * 10000} 0 ${this.width * 10000} ${height}`);
      }
      this.ticks();
    }

    ticks() {
      for (const old of this.root.querySelectorAll(".gridline, .tick")) old.remove();
      const from = this.start + this.low * this.length;
      const seconds = this.width * this.length;
      const rough = seconds / 10;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
      const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      for (let i = Math.ceil(from / step); i * step <= from + seconds; i += 1) {
        for (const [kind, parent] of [["gridline", this.back], ["tick", this.axis]]) {
          const made = document.createElement("span");
          made.className = kind + (i % 2 ? " minor" : "");
          made.style.setProperty("--a", (i * step - this.start) / this.length);
          if (kind === "tick") made.textContent = (i * step).toFixed(places);
          parent.append(made);
        }
      }
    }

    point(event) {
      const box = this.axis.getBoundingClientRect();
      const inside = event.clientX >= box.left && event.clientX <= box.right;
      this.cursor.hidden = !inside;
      if (!inside) return;
      const at = this.at(event);
      this.place(at, event.clientX > box.right - 90);
      moment(this.start + at * this.length, this);
    }

    place(at, flip) {
      this.cursor.style.setProperty("--a", at);
      this.cursor.classList.toggle("flip", flip);
      this.cursor.firstChild.textContent = `${(this.start + at * this.length).toFixed(3)} s`;
    }

    mark(seconds) {
      const at = (seconds - this.start) / this.length;
      const inside = at >= this.low && at <= this.low + this.width;
      this.cursor.hidden = !inside;
      if (inside) this.place(at, (at - this.low) / this.width > 0.9);
    }
  }

  // The log through time: every step is applied to what the replicas held before it.
  class Replay {
    constructor(block) {
      Object.assign(this, JSON.parse(block.querySelector("script").textContent));
      this.table = block.querySelector("table");
      this.range = block.querySelector("input");
      this.text = block.querySelector(".step");
      this.range.max = this.steps.length - 1;
      block.hidden = false;
      const jump = block.querySelector("[data-step=broke]");
      jump.hidden = this.broke < 0;
      this.range.addEventListener("input", () => {
        this.show(Number(this.range.value));
        moment(this.steps[Number(this.range.value)][0], this);
      });
      block.querySelector(".steps").addEventListener("click", (event) => {
        this.go(event.target.dataset.step);
      });
      block.addEventListener("keydown", (event) => {
        const how = { j: "on", k: "back", n: "next", p: "previous", e: "broke" }[event.key];
        if (how && !event.ctrlKey && !event.metaKey && !event.altKey) {
          event.preventDefault();
          this.go(how);
        }
      });
      this.show(this.broke >= 0 ? this.broke : this.steps.length - 1);
      listeners.push([this, (seconds) => this.reach(seconds)]);
    }

    // The last step up to a moment; none before the first.
    reach(seconds) {
      let at = -1;
      while (at + 1 < this.steps.length && this.steps[at + 1][0] <= seconds + 1e-6) at += 1;
      if (at >= 0) this.show(at);
    }

    go(how) {
      const at = Number(this.range.value);
      const last = this.steps.length - 1;
      const to = {
        first: 0, back: at - 1, on: at + 1, last, broke: this.broke,
        next: this.event(at, 1), previous: this.event(at, -1),
      }[how];
      if (to === undefined || to < 0) return;
      this.show(clamp(to, 0, last));
      moment(this.steps[Number(this.range.value)][0], this);
    }

    // The next step that is more than records and watermarks moving: a role, a cut, a process.
    event(at, way) {
      for (let i = at + way; i >= 0 && i < this.steps.length; i += way) {
        if (["role", "cut", "up", "down"].includes(this.steps[i][2])) return i;
      }
      return at;
    }

    // What each replica holds after step `at`, and what was acknowledged until then.
    after(at) {
      const nodes = this.nodes.map(() => ({ cells: new Map(), hw: 0, role: "", up: true }));
      const acked = new Map();
      for (const [, number, what, a, b, epoch] of this.steps.slice(0, at + 1)) {
        const node = nodes[number];
        if (what === "append") {
          for (let o = Math.max(a, this.low); o < Math.min(b, this.high); o += 1) node.cells.set(o, epoch);
        } else if (what === "cut") {
          for (const o of [...node.cells.keys()]) if (o >= a) node.cells.delete(o);
          node.hw = Math.min(node.hw, b);
        } else if (what === "hw") node.hw = a;
        else if (what === "role") {
          node.hw = a;
          node.role = b ? `leads e${epoch}` : `e${epoch}`;
        } else if (what === "up") node.up = true;
        else if (what === "down") { node.up = false; node.role = "down"; }
        else if (what === "ack") {
          for (let o = Math.max(a, this.low); o < Math.min(b, this.high); o += 1) {
            if (!acked.has(o)) acked.set(o, node.cells.get(o) ?? epoch);
          }
        }
      }
      return [nodes, acked];
    }

    show(at) {
      this.range.value = at;
      const [when, number, what, , , , words] = this.steps[at];
      this.text.textContent = `step ${at + 1} of ${this.steps.length}, ${when.toFixed(3)} s: ${words}`;
      this.range.setAttribute("aria-valuetext", this.text.textContent);
      this.text.classList.toggle("broke", at === this.broke);
      const [nodes, acked] = this.after(at);
      const made = (tag, parent, text = "", classes = "") => {
        const element = document.createElement(tag);
        element.textContent = text;
        element.className = classes;
        parent.append(element);
        return element;
      };
      this.table.replaceChildren();
      const head = made("tr", made("thead", this.table));
      made("th", head, "offset");
      for (let o = this.low; o < this.high; o += 1) made("th", head, String(o));
      const body = made("tbody", this.table);
      const promised = made("tr", body, "", "acked");
      made("th", promised, "acked");
      for (let o = this.low; o < this.high; o += 1) {
        made("td", promised, acked.has(o) ? `e${acked.get(o)}` : "", acked.has(o) ? "acked" : "none");
      }
      nodes.forEach((node, index) => {
        const row = made("tr", body, "", `replica${node.up ? "" : " down"}${index === number ? " now" : ""}`);
        made("th", row, `${this.nodes[index]} ${node.role}, HW ${node.hw}`);
        for (let o = this.low; o < this.high; o += 1) {
          const epoch = node.cells.get(o);
          const classes = [];
          if (epoch === undefined) classes.push("none");
          else classes.push(`ep${Math.max(0, epoch) % 8}`);
          if (epoch !== undefined && o >= node.hw) classes.push("above");
          if (o === node.hw) classes.push("hw");
          if (epoch !== undefined && acked.has(o) && acked.get(o) !== epoch) classes.push("bad");
          if (epoch === undefined && acked.has(o) && o < node.hw) classes.push("lacks");
          made("td", row, epoch === undefined ? "" : `e${epoch}`, classes.join(" "));
        }
      });
    }
  }

  for (const block of document.querySelectorAll(".replay")) new Replay(block);

  for (const root of document.querySelectorAll(".view")) {
    new View(root, root.previousElementSibling.querySelector(".zoom"));
  }
})();
