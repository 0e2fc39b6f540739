// The page around a model: starts the worker that runs it, shows how far it has loaded, and hands over to its kind.
const at = id => document.getElementById(id);
const settings = await (await fetch("page.json")).json();
const kind = await import(`./kinds/${settings.kind}.js`);
const worker = new Worker("worker.js" + location.search, { type: "module" });
const asked = new Map();
let count = 0;

const page = {
  settings,
  main: at("main"),
  // The result of the last request, for programs that drive the page.
  last: null,

  // A new element with attributes, appended to a parent.
  add(parent, tag, attributes = {}, text = "") {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in made) made[name] = value; else made.setAttribute(name, value);
    }
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  },

  // What the model answers to an input; `part` is called with each part of it before.
  ask(input, part = () => {}, transfer = []) {
    const id = ++count;
    worker.postMessage({ id, input }, transfer);
    return new Promise((resolve, reject) => asked.set(id, { resolve, reject, part }));
  },

  // End the request that runs; it answers with what there is.
  stop() {
    worker.postMessage({ stop: true });
  },

  // Run a function of a form and show its error.
  async run(form, action) {
    const parts = form.querySelectorAll("button.run");
    for (const each of parts) each.disabled = true;
    at("state").textContent = "";
    at("loading").hidden = true;
    delete document.body.dataset.error;
    try {
      page.last = await action();
      document.body.dataset.answers = Number(document.body.dataset.answers || 0) + 1;
    } catch (error) {
      page.fail(error.message);
    } finally {
      for (const each of parts) each.disabled = false;
    }
  },

  fail(message) {
    at("loading").hidden = false;
    at("progress").hidden = true;
    at("state").textContent = message;
    document.body.dataset.error = message;
  },

  // A field for text, whose form Enter sends, but for the Enter that ends the input of a character, and while it runs.
  textarea(form, placeholder) {
    const made = page.add(form, "textarea", { id: "text", placeholder });
    made.addEventListener("keydown", event => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!form.querySelector("button.run:disabled")) form.requestSubmit();
    });
    return made;
  },

  // A choice of one of several values.
  choice(parent, label, attributes, values) {
    const made = page.add(page.add(parent, "label", {}, `${label} `), "select", attributes);
    for (const value of values) made.add(new Option(value));
    return made;
  },

  // A number in a field of its own.
  number(parent, label, attributes) {
    const made = page.add(parent, "label", {}, `${label} `);
    return page.add(made, "input", { type: "number", ...attributes });
  },

  // Where files are dropped or chosen; `take` gets each.
  drop(parent, text, accept, take) {
    const zone = page.add(parent, "div", { className: "drop" });
    page.add(zone, "span", {}, `${text} `);
    const file = page.add(zone, "input", { type: "file", accept, id: "file" });
    file.addEventListener("change", () => { if (file.files.length) take(file.files[0]); });
    for (const event of ["dragover", "dragleave", "drop"]) zone.addEventListener(event, dropped => {
      dropped.preventDefault();
      zone.classList.toggle("over", event === "dragover");
      if (event === "drop" && dropped.dataTransfer.files.length) take(dropped.dataTransfer.files[0]);
    });
    return zone;
  },

  // Rows of a table; numbers get four digits.
  table(parent, rows) {
    const made = page.add(parent, "table");
    for (const row of rows) {
      const line = made.insertRow();
      for (const cell of row) line.insertCell().textContent = typeof cell === "number" ? cell.toFixed(4) : cell;
    }
    return made;
  },
};
globalThis.page = page;

const HEARD = {
  progress({ done, total }) {
    at("progress").max = total;
    at("progress").value = done;
    at("state").textContent = done < total
      ? `Loading the model: ${(done / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB` : "Preparing the model";
  },
  state({ text }) {
    at("progress").removeAttribute("value");
    at("state").textContent = text;
  },
  ready({ device, threads, facts }) {
    at("loading").hidden = true;
    at("device").textContent = device === "webgpu" ? "WebGPU" : `WASM, ${threads} ${threads === 1 ? "thread" : "threads"}`;
    kind.view(page, facts);
    document.body.dataset.ready = device;
  },
  failed({ message }) {
    page.fail(message);
  },
  part({ id, part }) {
    asked.get(id).part(part);
  },
  answer({ id, answer }) {
    asked.get(id).resolve(answer);
    asked.delete(id);
  },
  error({ id, message }) {
    asked.get(id).reject(new Error(message));
    asked.delete(id);
  },
};
worker.addEventListener("message", ({ data }) => HEARD[data.event](data));
worker.addEventListener("error", event => page.fail(event.message || "the worker did not start"));
document.title = settings.title;
at("title").textContent = `${settings.title}: ${settings.heading}`;
