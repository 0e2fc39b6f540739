// The worker of a page: loads the model and answers requests, one after the other, so that the page stays responsive.
import { start } from "./runtime.js";

const waiting = [];
let model = null, running = false;

async function load() {
  const settings = await (await fetch("page.json")).json();
  const kind = await import(`./kinds/${settings.kind}.js`);
  const runtime = await start(settings, message => postMessage(message));
  model = await kind.load(runtime);
  postMessage({ event: "ready", device: runtime.device, threads: runtime.threads, facts: model.facts || {} });
  next();
}

async function next() {
  if (running || !model || !waiting.length) return;
  running = true;
  const { id, input } = waiting.shift();
  try {
    const answer = await model.answer(input, part => postMessage({ event: "part", id, part }));
    postMessage({ event: "answer", id, answer });
  } catch (error) {
    postMessage({ event: "error", id, message: error.message });
  }
  running = false;
  next();
}

addEventListener("message", ({ data }) => {
  if (data.stop) {
    if (model && model.stop) model.stop();
    return;
  }
  waiting.push(data);
  next();
});
load().catch(error => postMessage({ event: "failed", message: error.message }));
