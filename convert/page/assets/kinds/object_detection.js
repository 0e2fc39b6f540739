// Object detection: YOLO, and detectors with queries (DETR and its successors).
import { colorOf, decoded, labelsOf, preparedFor } from "../picture.js";

const CANDIDATES = 30000, MOST = 300, IOU = 0.7;
const YOLO = 0.25, QUERIES = 0.5;

export async function load(runtime) {
  const model = await runtime.session("model");
  const labels = await labelsOf(runtime.settings);
  const queries = model.outputNames.includes("pred_boxes");
  return {
    facts: { threshold: queries ? QUERIES : YOLO },
    async answer({ threshold, ...picture }) {
      const at = preparedFor(runtime, picture);
      const found = await model.run({ [model.inputNames[0]]: at.input });
      const boxes = queries
        ? queried(found.logits, found.pred_boxes, labels.length, threshold, at)
        : distinct(yolo(columns(found), labels.length, threshold)).map(box => inPicture(box, at));
      return boxes.slice(0, MOST).map(({ corners: [xmin, ymin, xmax, ymax], score, number, points }) => ({
        label: labels[number] ?? `LABEL_${number}`, number, score, box: { xmin, ymin, xmax, ymax },
        ...(points ? { keypoints: points } : {}),
      }));
    },
  };
}

const byScore = (a, b) => b.score - a.score;

// The rows [values, positions] of a YOLO: center x and y, width, height, scores, key points.
function columns(found) {
  const parts = found.output0 ? [found.output0] : [found.boxes_xywh, found.scores, found.keypoints].filter(Boolean);
  const count = parts[0].dims[2];
  const rows = parts.flatMap(each => Array.from({ length: each.dims[1] }, (_, row) =>
    each.data.subarray(row * count, (row + 1) * count)));
  return { rows, count, classes: found.scores?.dims[1] };
}

function yolo({ rows, count, classes = rows.length - 4 }, labels, threshold) {
  const last = 4 + Math.min(classes, labels || classes);
  const boxes = [];
  for (let at = 0; at < count; at++) {
    let best = 4;
    for (let row = 5; row < last; row++) if (rows[row][at] > rows[best][at]) best = row;
    const score = rows[best][at];
    if (!(score > threshold)) continue;
    const points = [];
    for (let row = last; row + 2 < rows.length; row += 3) points.push([0, 1, 2].map(each => rows[row + each][at]));
    boxes.push({
      corners: cornersOf([0, 1, 2, 3].map(row => rows[row][at])), score, number: best - 4,
      points: points.length ? points : null,
    });
  }
  return boxes.sort(byScore).slice(0, CANDIDATES);
}

// Detectors whose last class is none, or whose classes exclude no other.
function queried(logits, centers, labels, threshold, { width, height }) {
  const [, count, classes] = logits.dims;
  const cornersAt = at => {
    const [x0, y0, x1, y1] = cornersOf(centers.data.subarray(4 * at, 4 * at + 4));
    return [x0 * width, y0 * height, x1 * width, y1 * height];
  };
  const rowAt = at => Array.from(logits.data.subarray(at * classes, (at + 1) * classes));
  const boxes = [];
  for (let at = 0; at < count; at++) {
    const row = rowAt(at);
    if (classes === labels) {
      row.forEach((logit, number) => boxes.push({ at, number, score: 1 / (1 + Math.exp(-logit)) }));
    } else {
      const most = Math.max(...row);
      const shares = row.map(each => Math.exp(each - most));
      const sum = shares.reduce((a, b) => a + b, 0);
      const best = shares.slice(0, -1).reduce((a, b, number) => (b > shares[a] ? number : a), 0);
      boxes.push({ at, number: best, score: shares[best] / sum });
    }
  }
  return boxes.sort(byScore).slice(0, count).filter(each => each.score > threshold)
    .map(({ at, ...each }) => ({ ...each, corners: cornersAt(at) }));
}

const cornersOf = ([x, y, width, height]) => [x - width / 2, y - height / 2, x + width / 2, y + height / 2];

// The boxes that overlap no better one of their class by more than the limit.
function distinct(boxes) {
  const kept = [];
  for (const box of boxes) {
    if (kept.length === MOST) break;
    if (kept.every(other => other.number !== box.number || overlap(other.corners, box.corners) <= IOU)) kept.push(box);
  }
  return kept;
}

function overlap(a, b) {
  const [width, height] = [0, 1].map(axis => Math.max(0, Math.min(a[axis + 2], b[axis + 2]) - Math.max(a[axis], b[axis])));
  const area = ([x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0);
  const both = width * height;
  return both > 0 ? both / (area(a) + area(b) - both) : 0;
}

function inPicture({ corners, points, ...box }, at) {
  return {
    ...box, corners: [...at.toPicture(corners.slice(0, 2)), ...at.toPicture(corners.slice(2))],
    points: points && points.map(([x, y, seen]) => [...at.toPicture([x, y]), seen]),
  };
}

export function view(page, { threshold }) {
  const form = page.add(page.main, "form");
  const options = page.add(form, "div", { className: "options" });
  const least = page.number(options, "score above", { id: "threshold", value: threshold, min: 0, max: 1, step: 0.05 });
  let file = null;
  page.drop(form, "Drop a picture, or choose one:", "image/*", chosen => { file = chosen; look(); });
  const log = page.add(page.main, "section");
  least.addEventListener("change", () => file && look());

  function look() {
    return page.run(form, async () => {
      const { canvas, bytes, width, height } = await decoded(file);
      const found = await page.ask({ bytes, width, height, threshold: Number(least.value) }, () => {}, [bytes.buffer]);
      draw(canvas, found);
      log.replaceChildren(canvas);
      page.table(log, found.map(({ label, score, box }) =>
        [label, score, ...Object.values(box).map(each => each.toFixed(0))]));
      return found;
    });
  }
}

function draw(canvas, found) {
  const context = canvas.getContext("2d");
  const unit = Math.max(1, canvas.width / 400);
  context.lineWidth = 1.5 * unit;
  context.font = `${11 * unit}px system-ui, sans-serif`;
  for (const { label, number, score, box, keypoints } of [...found].reverse()) {
    const { xmin, ymin, xmax, ymax } = box;
    context.strokeStyle = context.fillStyle = colorOf(number);
    context.strokeRect(xmin, ymin, xmax - xmin, ymax - ymin);
    const text = `${label} ${score.toFixed(2)}`;
    context.fillRect(xmin, ymin, context.measureText(text).width + 4 * unit, 14 * unit);
    for (const [x, y] of keypoints || []) context.fillRect(x - unit, y - unit, 2 * unit, 2 * unit);
    context.fillStyle = "white";
    context.fillText(text, xmin + 2 * unit, ymin + 11 * unit);
  }
}
