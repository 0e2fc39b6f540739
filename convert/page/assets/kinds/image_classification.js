// Image classification: the most probable labels of a picture.
import { decoded, labelsOf, preparedFor } from "../picture.js";

const SHOWN = 5;

export async function load(runtime) {
  const model = await runtime.session("model");
  const labels = await labelsOf(runtime.settings);
  return {
    async answer(picture) {
      const { input } = preparedFor(runtime, picture);
      const logits = Object.values(await model.run({ [model.inputNames[0]]: input }))[0].data;
      const scores = runtime.settings.several ? Array.from(logits, each => 1 / (1 + Math.exp(-each))) : softmax(logits);
      return scores.map((score, number) => ({ label: labels[number] ?? `LABEL_${number}`, score }))
        .sort((a, b) => b.score - a.score);
    },
  };
}

function softmax(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const shares = Array.from(logits, each => Math.exp(each - most));
  const sum = shares.reduce((a, b) => a + b, 0);
  return shares.map(each => each / sum);
}

export function view(page) {
  const form = page.add(page.main, "form");
  page.drop(form, "Drop a picture, or choose one:", "image/*", file => page.run(form, async () => {
    const { canvas, bytes, width, height } = await decoded(file);
    const found = await page.ask({ bytes, width, height }, () => {}, [bytes.buffer]);
    log.replaceChildren(canvas);
    page.table(log, found.slice(0, SHOWN).map(each => [each.label, each.score]));
    return found;
  }));
  const log = page.add(page.main, "section");
}
