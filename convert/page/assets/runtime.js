// The library that runs models, from its copy in this folder, on WebGPU where the browser has it and WASM else.

// What models run on; ?device=wasm in the address chooses.
async function chosenDevice(settings) {
  const asked = new URLSearchParams(location.search).get("device");
  if (asked) return asked;
  const adapter = navigator.gpu && await navigator.gpu.requestAdapter();
  const halves = settings.dtype.endsWith("16");
  return adapter && (!halves || adapter.features.has("shader-f16")) ? "webgpu" : "wasm";
}

// A fetch that reports how much of the model has come.
function reportingFetch(settings, post) {
  const total = Object.values(settings.files).reduce((sum, size) => sum + size, 0);
  let done = 0;
  return async (address, options) => {
    const answer = await fetch(address, options);
    if (!answer.ok || !Object.keys(settings.files).some(path => answer.url.endsWith(path))) return answer;
    const reporting = new TransformStream({
      transform(part, controller) {
        done = Math.min(total, done + part.length);
        post({ event: "progress", done, total });
        controller.enqueue(part);
      },
    });
    return new Response(answer.body.pipeThrough(reporting), { status: answer.status, headers: answer.headers });
  };
}

// Messages are heard between two steps of a model that computes on this thread.
function pauses() {
  const channel = new MessageChannel();
  return () => new Promise(resolve => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
}

// What kinds of pages load their models with: `settings` of the page, the `device`, the number of `threads`, `pause()`,
// and either `js`, which is Transformers.js with the options `loading` of its models, or `ort`, which is onnxruntime-web
// with `session(name)` of a graph by its file's name without suffix.
export async function start(settings, post) {
  const device = await chosenDevice(settings);
  const threads = globalThis.crossOriginIsolated ? Math.min(8, navigator.hardwareConcurrency || 1) : 1;
  const [script] = settings.runtime;
  post({ event: "state", text: `Loading ${script}` });
  const library = await import(`./runtime/${script}`);
  const env = library.env;
  const wasm = (env.backends?.onnx || env).wasm;
  const binary = settings.runtime.find(name => name.endsWith(".wasm"));
  wasm.wasmPaths = { wasm: new URL(`./runtime/${binary}`, import.meta.url).href };
  wasm.numThreads = threads;
  const load = reportingFetch(settings, post);
  const runtime = { settings, device, threads, pause: pauses() };
  if (library.pipeline) {
    Object.assign(env, {
      allowRemoteModels: false, allowLocalModels: true, useBrowserCache: false, useWasmCache: false,
      localModelPath: "./", fetch: load,
    });
    return { ...runtime, js: library, loading: { dtype: settings.dtype, device } };
  }
  const bytes = async path => {
    const answer = await load(path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
    return new Uint8Array(await answer.arrayBuffer());
  };
  const session = async name => {
    const path = `model/onnx/${name}${settings.suffix}.onnx`;
    const externalData = [];
    for (const each of Object.keys(settings.files).filter(each => each.startsWith(`${path}_data`))) {
      externalData.push({ path: each.split("/").pop(), data: await bytes(each) });
    }
    return library.InferenceSession.create(await bytes(path), { executionProviders: [device], externalData });
  };
  return { ...runtime, ort: library, session };
}
