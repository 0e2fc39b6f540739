// Speech recognition: the text of a recording from a file or the microphone, by Whisper, Moonshine and CTC models.
import { streaming } from "../generation.js";

const WINDOW = 30;

export async function load(runtime) {
  const recognizer = await runtime.js.pipeline("automatic-speech-recognition", "model", runtime.loading);
  const whisper = recognizer.model.config.model_type === "whisper";
  const settings = whisper ? recognizer.model.generation_config : null;
  const languages = settings?.is_multilingual ? Object.keys(settings.lang_to_id || {}) : [];
  const stream = whisper ? streaming(runtime, recognizer) : null;
  return {
    facts: {
      languages: languages.map(each => each.replace(/^<\||\|>$/g, "")),
      rate: recognizer.processor.feature_extractor.config.sampling_rate || 16000,
    },
    stop: stream?.stop,
    async answer({ samples, language, task, rate }, emit) {
      if (!whisper) return { text: (await recognizer(samples)).text };
      const { text, ...options } = stream.options(emit);
      const spoken = languages.length ? { language, task } : {};
      const windows = samples.length > WINDOW * rate ? { chunk_length_s: WINDOW } : {};
      return { text: (await recognizer(samples, { ...spoken, ...windows, ...options })).text };
    },
  };
}

// Samples of one channel at the model's rate.
async function decoded(file, rate) {
  const context = new OfflineAudioContext(1, 1, rate);
  const sound = await context.decodeAudioData(await file.arrayBuffer());
  const samples = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    sound.getChannelData(channel).forEach((value, at) => { samples[at] += value / sound.numberOfChannels; });
  }
  return samples;
}

export function view(page, { languages, rate }) {
  const form = page.add(page.main, "form");
  const options = page.add(form, "div", { className: "options" });
  const language = languages.length ? page.choice(options, "language", { id: "language" }, languages) : null;
  const task = language ? page.choice(options, "task", { id: "task" }, ["transcribe", "translate"]) : null;
  if (languages.includes("en")) language.value = "en";
  const zone = page.drop(form, "Drop a recording, or choose one:", "audio/*", file => hear(file));
  const record = page.add(zone, "button", { className: "run", type: "button", id: "record" }, "Record");
  const stop = page.add(form, "button", { type: "button", id: "stop" }, "Stop");
  const log = page.add(page.main, "section", { id: "log" });
  let recorder = null;

  function hear(file) {
    return page.run(form, async () => {
      const entry = page.add(log, "div", { className: "user" }, file.name || "recording");
      page.add(entry, "audio", { controls: true, src: URL.createObjectURL(file) });
      const said = page.add(log, "div", { className: "assistant" });
      const samples = await decoded(file, rate);
      const found = await page.ask(
        { samples, rate, language: language?.value, task: task?.value }, piece => { said.textContent += piece; },
        [samples.buffer],
      );
      said.textContent = found.text;
      return found;
    });
  }

  record.addEventListener("click", async () => {
    if (recorder) { recorder.stop(); return; }
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const parts = [];
      recorder = new MediaRecorder(stream);
      recorder.addEventListener("dataavailable", event => parts.push(event.data));
      recorder.addEventListener("stop", () => {
        for (const track of stream.getTracks()) track.stop();
        recorder = null;
        record.textContent = "Record";
        hear(new Blob(parts, { type: parts[0]?.type }));
      });
      recorder.start();
      record.textContent = "Finish";
    } catch (error) {
      page.fail(`no microphone: ${error.message}`);
    }
  });
  stop.addEventListener("click", () => page.stop());
}
