// Mask generation: Segment Anything, whose points are clicks. A picture is encoded once, each prompt is decoded.
import { colorOf, decoded, preparedFor } from "../picture.js";

export async function load(runtime) {
  const { ort } = runtime;
  const encoder = await runtime.session("vision_encoder");
  const decoder = await runtime.session("prompt_encoder_mask_decoder");
  const own = decoder.outputNames.includes("single_mask");
  let at = null, seen = null;
  return {
    async answer({ picture, points }) {
      if (picture) {
        at = preparedFor(runtime, picture);
        seen = await encoder.run({ [encoder.inputNames[0]]: at.input });
      }
      if (!points.length) return { masks: [] };
      // Our decoder takes the point that stands for no box, the one that Optimum exports adds it.
      const marks = [...points.map(([x, y, label]) => [...at.toInput([x, y]), label]), ...(own ? [[0, 0, -1]] : [])];
      const found = await decoder.run({
        input_points: new ort.Tensor("float32", marks.flatMap(([x, y]) => [x, y]), [1, 1, marks.length, 2]),
        input_labels: new ort.Tensor("int64", BigInt64Array.from(marks, each => BigInt(each[2])), [1, 1, marks.length]),
        image_embeddings: seen.image_embeddings,
        image_positional_embeddings: seen.image_positional_embeddings,
      });
      const several = points.length === 1;
      const [masks, scores] = several || !own
        ? [found.pred_masks, found.iou_scores] : [found.single_mask, found.single_score];
      const [height, width] = masks.dims.slice(-2);
      const rows = Array.from(scores.data, (score, row) => ({
        score, logits: masks.data.subarray(row * height * width, (row + 1) * height * width),
      })).sort((a, b) => b.score - a.score);
      return {
        masks: (several || own ? rows : rows.slice(0, 1)).map(({ score, logits }) =>
          ({ score, ...inside(logits, height, width, at) })),
      };
    },
  };
}

// Logits of a mask scaled to the model's input, cut to the picture, scaled to the picture: what is above 0.
function inside(logits, height, width, { box, resized, corner, ...picture }) {
  const whole = scaled(logits, height, width, ...box);
  const shown = new Float32Array(resized[0] * resized[1]);
  for (let row = 0; row < resized[0]; row++) {
    const start = (row + corner[0]) * box[1] + corner[1];
    shown.set(whole.subarray(start, start + resized[1]), row * resized[1]);
  }
  const found = scaled(shown, ...resized, picture.height, picture.width);
  const mask = Uint8Array.from(found, each => each > 0);
  return { mask, area: mask.reduce((a, b) => a + b, 0) };
}

// Bilinear interpolation of pixel centers, as PyTorch's with align_corners=False.
function scaled(values, height, width, rows, columns) {
  const neighbors = (length, count) => Array.from({ length: count }, (_, at) => {
    const position = Math.max(0, (at + 0.5) * length / count - 0.5);
    const first = Math.min(Math.floor(position), length - 1);
    return [first, Math.min(first + 1, length - 1), position - first];
  });
  const found = new Float32Array(rows * columns);
  const across = neighbors(width, columns);
  neighbors(height, rows).forEach(([above, below, down], row) => across.forEach(([left, right, share], column) => {
    const between = line => values[line * width + left] * (1 - share) + values[line * width + right] * share;
    found[row * columns + column] = between(above) * (1 - down) + between(below) * down;
  }));
  return found;
}

export function view(page) {
  const form = page.add(page.main, "form");
  page.drop(form, "Drop a picture, or choose one:", "image/*", file => page.run(form, async () => {
    shown = await decoded(file);
    const { canvas, bytes, width, height } = shown;
    canvas.id = "picture";
    canvas.addEventListener("click", mark);
    points = [];
    log.replaceChildren(canvas, note);
    note.textContent = "Encoding the picture ...";
    const found = await page.ask({ picture: { bytes, width, height }, points }, () => {}, [bytes.buffer]);
    note.textContent = HINT;
    return found;
  }));
  const HINT = "Click on an object; with Shift, on what is not part of it.";
  const buttons = page.add(form, "div");
  const other = page.add(buttons, "button", { className: "run", type: "button" }, "Another mask");
  const clear = page.add(buttons, "button", { className: "run", type: "button", id: "clear" }, "Clear points");
  const log = page.add(page.main, "section");
  const note = page.add(page.main, "p");
  let shown = null, points = [], masks = [], chosen = 0;

  function mark(event) {
    const area = shown.canvas.getBoundingClientRect();
    points.push([
      (event.clientX - area.x) / area.width * shown.width, (event.clientY - area.y) / area.height * shown.height,
      event.shiftKey ? 0 : 1,
    ]);
    page.run(form, async () => {
      const found = await page.ask({ points });
      ({ masks } = found);
      chosen = 0;
      draw();
      return { points, masks };
    });
  }

  function draw() {
    const context = shown.canvas.getContext("2d");
    context.drawImage(shown.bitmap, 0, 0);
    if (masks.length) {
      const { mask, score, area } = masks[chosen];
      const colors = context.getImageData(0, 0, shown.width, shown.height);
      mask.forEach((within, at) => {
        if (!within) return;
        colors.data[4 * at] = colors.data[4 * at] / 2;
        colors.data[4 * at + 1] = colors.data[4 * at + 1] / 2 + 64;
        colors.data[4 * at + 2] = colors.data[4 * at + 2] / 2 + 127;
      });
      context.putImageData(colors, 0, 0);
      note.textContent = `Mask ${chosen + 1} of ${masks.length}: score ${score.toFixed(4)}, ${area} pixels`;
    } else {
      note.textContent = HINT;
    }
    const unit = Math.max(1, shown.width / 400);
    for (const [x, y, label] of points) {
      context.fillStyle = colorOf(label ? 1 : 0);
      context.beginPath();
      context.arc(x, y, 4 * unit, 0, 7);
      context.fill();
    }
  }

  other.addEventListener("click", () => {
    if (!masks.length) return;
    chosen = (chosen + 1) % masks.length;
    draw();
  });
  clear.addEventListener("click", () => {
    if (!shown) return;
    points = [];
    masks = [];
    draw();
  });
}
