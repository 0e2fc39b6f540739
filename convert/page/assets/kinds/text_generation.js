// Text generation: a prompt is continued as it is, or a conversation is by the model's chat template.
import { streaming } from "../generation.js";

export async function load(runtime) {
  const generator = await runtime.js.pipeline("text-generation", "model", runtime.loading);
  const stream = streaming(runtime, generator);
  const chat = Boolean(generator.tokenizer.chat_template);
  return {
    facts: { chat },
    stop: stream.stop,
    async answer({ text, messages, tokens, temperature }, emit) {
      const { text: said, ...options } = stream.options(emit);
      const sampling = temperature > 0 ? { do_sample: true, temperature } : { do_sample: false };
      await generator(chat ? messages : text, {
        add_special_tokens: !chat, max_new_tokens: tokens, ...sampling, ...options,
      });
      return { text: said() };
    },
  };
}

export function view(page, { chat }) {
  const log = page.add(page.main, "section", { id: "log" });
  const form = page.add(page.main, "form");
  const text = page.textarea(form, chat ? "Say something." : "A text to continue.");
  const options = page.add(form, "div", { className: "options" });
  const tokens = page.number(options, "tokens", { id: "tokens", value: 128, min: 1 });
  const temperature = page.number(options, "temperature", { id: "temperature", value: 0, min: 0, step: 0.1 });
  page.add(form, "button", { className: "run", id: "send" }, "Send");
  const stop = page.add(form, "button", { type: "button", id: "stop" }, "Stop");
  const clear = page.add(form, "button", { type: "button", id: "clear" }, "Clear");
  let turns = [];
  form.addEventListener("submit", event => {
    event.preventDefault();
    const asked = text.value;
    if (!asked) return;
    text.value = "";
    page.run(form, async () => {
      const before = turns, asking = [...before, { role: "user", content: asked }];
      const question = page.add(log, "div", { className: "user" }, asked);
      const said = page.add(log, "div", { className: "assistant" }, chat ? "" : asked);
      try {
        const found = await page.ask(
          { text: asked, messages: asking, tokens: Number(tokens.value), temperature: Number(temperature.value) },
          piece => { said.textContent += piece; said.scrollIntoView({ block: "nearest" }); },
        );
        // Unless the conversation was cleared meanwhile.
        if (turns === before) turns = [...asking, { role: "assistant", content: found.text }];
        return found;
      } catch (error) {
        question.remove();
        said.remove();
        text.value ||= asked;
        throw error;
      }
    });
  });
  stop.addEventListener("click", () => page.stop());
  clear.addEventListener("click", () => { page.stop(); turns = []; log.replaceChildren(); });
}
