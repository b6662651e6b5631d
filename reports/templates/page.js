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
      this.cursor.style.setProperty("--a", at);
      this.cursor.classList.toggle("flip", event.clientX > box.right - 90);
      this.cursor.firstChild.textContent = `${(this.start + at * this.length).toFixed(3)} s`;
    }
  }

  for (const root of document.querySelectorAll(".view")) {
    new View(root, root.previousElementSibling.querySelector(".zoom"));
  }
})();
