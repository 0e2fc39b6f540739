// Text to text: what an encoder-decoder makes of a text; between languages where its tokenizer has their codes.
import { streaming } from "../generation.js";

export async function load(runtime) {
  const { js } = runtime;
  let generator = await js.pipeline("text2text-generation", "model", runtime.loading);
  const { model, tokenizer } = generator;
  const languages = tokenizer.language_codes ? [...tokenizer.language_codes] : [];
  if (languages.length) generator = new js.TranslationPipeline({ task: "translation", model, tokenizer });
  const stream = streaming(runtime, generator);
  return {
    facts: { languages },
    stop: stream.stop,
    async answer({ text, tokens, source, target }, emit) {
      const { text: said, ...options } = stream.options(emit);
      const between = languages.length ? { src_lang: source, tgt_lang: target } : {};
      const [found] = await generator(text, { max_new_tokens: tokens, do_sample: false, ...between, ...options });
      return { text: found.generated_text ?? found.translation_text };
    },
  };
}

export function view(page, { languages }) {
  const form = page.add(page.main, "form");
  const text = page.textarea(form, "A text, with the prefix that the model was trained with.");
  const options = page.add(form, "div", { className: "options" });
  const tokens = page.number(options, "tokens", { id: "tokens", value: 256, min: 1 });
  const [source, target] = languages.length
    ? ["from", "to"].map(label => page.choice(options, label, { id: label }, languages)) : [];
  page.add(form, "button", { className: "run", id: "send" }, "Send");
  const stop = page.add(form, "button", { type: "button", id: "stop" }, "Stop");
  const log = page.add(page.main, "section", { id: "log" });
  form.addEventListener("submit", event => {
    event.preventDefault();
    if (!text.value) return;
    page.run(form, async () => {
      const said = page.add(log, "div", { className: "assistant" });
      const found = await page.ask(
        { text: text.value, tokens: Number(tokens.value), source: source?.value, target: target?.value },
        piece => { said.textContent += piece; said.scrollIntoView({ block: "nearest" }); },
      );
      said.textContent = found.text;
      return found;
    });
  });
  stop.addEventListener("click", () => page.stop());
}
